"""The page about what a curious server sees says what the algorithms really send; `python -m` this file prints it."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from torch import nn

import fedtempo as ft
from fedtempo.algorithms.parts.rate_rules import HISTORY
from fedtempo.client.objectives import Received
from fedtempo.contracts import small_data
from fedtempo.federation.federation import Federation
from fedtempo.params import select
from fedtempo.training.prepare import prepare
from tests.zoo import EVERYTHING as ALGORITHMS
from tests.zoo import LORA, model

PAGE = Path(__file__).resolve().parents[2] / "docs" / "curious-server.md"
WORDS = {
    "delta": "displacement",
    "control": "change of its control variate",
    "squared_norm": "its squared norm",
    "direction": "mean direction of its steps",
    "work": "weight and number of its steps",
    "optimizer": "moments of its optimizer",
    "height": "its estimate of the curvature",
    "losses": "its loss",
    "loss_weights": "its loss",
    "products": "the product of its adapters",
}
DOWN = {
    "lambda": "the clients' weights",
    "_hyper/factor": "the clients' rate",
    "_hyper/": "last mean displacement",
    "_drive/": "last mean displacement",
    "_direction/": "mean direction",
    "_previous/": "last model",
    "_optimizer/": "mean moments",
}
KEPT = {
    "previous/": "its last model",
    "mix/": "a model of its own, and how it is mixed",
    "number": "its number",
    "_lesam/": "the model it received last",
    "_init/": "its last model",
    "_optimizer/0/rate": "the bound of its rate",
    "_optimizer/": "moments of its optimizer",
}
WEIGHTS = {"uniform": "-", "samples": "training rows", "processed": "rows processed"}


class Normalised(nn.Module):
    """A body with BatchNorm and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5))
        self.head = nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.body(x))
        return out


def chosen(name: str) -> ft.Algorithm:
    """One algorithm of this name; the wrappers around FedAvg's clients."""
    return ALGORITHMS["four at once"] if name == "fednar" else next(a for a in ALGORITHMS.values() if a.name == name)


def federation_of(name: str, network: nn.Module) -> Federation:
    return prepare(model=network, data=small_data(), algorithm=chosen(name), rounds=1, batch_size=None).federation


def network_for(name: str) -> nn.Module:
    return model("lora") if name in LORA else ft.models.mlp(6, [5], 4)


def normalised_for(name: str) -> nn.Module:
    return nn.Sequential(model("lora"), nn.BatchNorm1d(4)) if name in LORA else Normalised()


def row(name: str) -> str:
    """What a round of the algorithm shows to whom, from the algorithm itself."""
    federation, normal = federation_of(name, network_for(name)), federation_of(name, normalised_for(name))
    algorithm, shared = federation.algorithm, federation.first_shared()
    extra = algorithm.server.extra(algorithm.server.init(select(shared, federation.trained_names)))
    kept = federation.first_personal(0, shared)
    carry = federation.program.init(Received(shared, extra), kept)
    groups, _, measured = federation.program.finish(Received(shared, extra), carry)
    sent = ", ".join(WORDS[group] for group in groups) or "nothing"
    if groups and set(groups["delta"]) != set(federation.problem.network.parameters):
        sent = sent.replace("displacement", f"displacement of {_part_words(set(groups['delta']))}")
    statistics = "shared" if "buffers" in normal.expected else "stay"
    cells = (
        f"`{name}`",
        sent,
        WEIGHTS[algorithm.weighting] if groups else "-",
        ", ".join(sorted(measured)) or "-",
        _down_words(extra),
        _kept_words(name, kept, federation),
        statistics if groups else "stay",
        _private_words(name, federation),
    )
    return "| " + " | ".join(cells) + " |"


def _part_words(names: set[str]) -> str:
    if any(".lora_" in name for name in names):
        kinds = [kind for kind in ("A", "B") if any(f".lora_{kind}." in name for name in names)]
        return "the adapters" if len(kinds) > 1 else f"the adapters' {kinds[0]}"
    return "the head" if all(name.startswith("head.") for name in names) else "the body"


def _down_words(extra: dict[str, torch.Tensor]) -> str:
    words = (next((w for lead, w in DOWN.items() if n.startswith(lead)), "control variate") for n in extra)
    return ", ".join(dict.fromkeys(words)) or "-"


def _kept_words(name: str, kept: dict[str, torch.Tensor], federation: Federation) -> str:
    if not kept:
        return "-"
    if federation.personal_names or all(tensor.startswith("head.") for tensor in kept):
        part = _part_words(set(federation.personal_names or kept))
        return part + (", made anew each round" if federation.algorithm.memory.stateless else "")
    if set(kept) == {"pi"}:
        return "mixture weights"
    notes = [words for lead, words in KEPT.items() if any(n.startswith(lead) for n in kept)]
    if notes:
        return notes[0]
    if name in ("feddyn", "fedspeed"):
        return "the sum of its displacements"
    control = "control" in federation.expected
    return "its control variate" if control else "a model of its own"


def _private_words(name: str, federation: Federation) -> str:
    groups = set(federation.expected)
    if not groups:
        return "refused: nothing is shared"
    if groups != {"delta"}:
        return f"refused: {WORDS[min(groups - {'delta'})]}"
    if HISTORY in federation.algorithm.owns:
        return "refused: the server adds up what clients sent"
    if federation.algorithm.weighting == "uniform":
        return "yes"
    settable = "weighting" in inspect.signature(ft.algorithms.ALGORITHMS[name]).parameters
    return "with uniform weights" if settable else "refused: weights"


@pytest.mark.parametrize("name", ft.algorithms.ALGORITHMS)
def test_the_page_has_the_algorithms_own_row(name: str) -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    (written,) = [line for line in lines if line.startswith(f"| `{name}` |")]
    assert written == row(name)


@pytest.mark.parametrize("name", ft.algorithms.ALGORITHMS)
def test_a_private_mean_is_taken_or_refused_as_the_page_says(name: str) -> None:
    """The word in the last column is what happens."""
    given = {
        "model": network_for(name),
        "data": small_data(),
        "algorithm": chosen(name),
        "rounds": 1,
        "evaluation": None,
        "aggregator": ft.robust.private_mean(1.0, 1.0),
    }
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    (written,) = [line for line in lines if line.startswith(f"| `{name}` |")]
    if written.endswith("| yes |"):
        assert prepare(**given).federation.private  # type: ignore[arg-type]
        return
    with pytest.raises(ft.ConfigError, match=r"private.mean"):
        prepare(**given)  # type: ignore[arg-type]


if __name__ == "__main__":
    old = PAGE.read_text(encoding="utf-8").splitlines()
    known = {f"| `{name}` |" for name in ft.algorithms.ALGORITHMS}
    places = [place for place, line in enumerate(old) if line[: line.find("|", 2) + 1] in known]
    rows = [row(name) for name in ft.algorithms.ALGORITHMS]
    PAGE.write_text("\n".join([*old[: places[0]], *rows, *old[places[-1] + 1 :]]) + "\n", encoding="utf-8")
