"""LoRA adapters on a pretrained transformer: which factors are averaged, and how.

The base learns scikit-learn's digits in one place. Clients then adapt it to MNIST's, of which each has its own mixture:
other people's writing, scanned otherwise.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedtempo.algorithms import fedavg, fedex_lora, fedsa_lora, ffa_lora
from fedtempo.data import dirichlet, load
from fedtempo.errors import ModelError
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.models.character_transformer import TransformerBlock
from fedtempo.models.split import SplitNetwork
from fedtempo.models.weights import seeded
from fedtempo.papers.control.judging import GAIN
from fedtempo.papers.control.methods import FEDAVG, USERS, Maker, rounds_run
from fedtempo.papers.control.neighbours import CONVERGED, by_method, digits_tuning
from fedtempo.papers.control.personal import (
    AFTER,
    BEFORE,
    EXISTING_AFTER,
    EXISTING_BEFORE,
    NEW,
    NEW_AFTER,
    better,
    personal_gains,
)
from fedtempo.papers.framework.claims import Claim, higher
from fedtempo.papers.framework.definitions import (
    Column,
    Data,
    Measure,
    PaperRun,
    Scale,
    Training,
    score_column,
    sized,
)
from fedtempo.papers.framework.measures import costs, learning, users
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.support.extras import library

FEDSA, FFA, FEDEX = "FedSA-LoRA", "FFA-LoRA", "FedEx-LoRA"
SIDE = 8
"""Images are brought to the size of scikit-learn's digits, and a row of pixels is a token."""
RANK, SCALING = 4, 2
# A first plan went from 0.06 to 1.8, and all four chose 0.06. Two runs on seed 0 had ended by then; nobody read them.
RATES = (0.007, 0.02, 0.06, 0.2)


class RowsAsTokens(nn.Module):
    """Images of 8 x 8 or 28 x 28 as eight tokens, through transformer blocks; the mean over tokens."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Linear(SIDE, width)
        self.places = nn.Embedding(SIDE, width)
        self.blocks = nn.Sequential(*(TransformerBlock(width, 4, 2 * width, 0.0, False) for _ in range(layers)))

    def forward(self, x: Tensor) -> Tensor:
        """(rows, ...) of pixels in [0, 1] to (rows, width)."""
        side = round(x[0].numel() ** 0.5)
        image = x.reshape(len(x), 1, side, side)
        # MNIST's margin is cut off, so that digits fill the image as scikit-learn's do.
        small = image if side == SIDE else F.avg_pool2d(image[..., 2:26, 2:26], 3)
        features: Tensor = self.blocks(self.embedding(small.squeeze(1)) + self.places.weight)
        return features.mean(1)


@functools.cache
def pretrained(width: int, layers: int, epochs: int) -> SplitNetwork:
    """The transformer after so many epochs of Adam on all of scikit-learn's digits; the same in every run."""
    with seeded(0, "pretrained"):
        model = SplitNetwork(RowsAsTokens(width, layers), nn.Linear(width, 10))
        table = load("digits")
        x, y = torch.tensor(table.columns["x"] / 16, dtype=torch.float32), torch.tensor(table.columns["y"])
        optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
        for _ in range(epochs):
            for rows in torch.split(torch.randperm(len(y)), 64):
                optimizer.zero_grad()
                torch.autograd.backward([F.cross_entropy(model(x[rows]), y[rows])])
                optimizer.step()
    return model


def adapted(width: int, layers: int, epochs: int) -> nn.Module:
    """The pretrained transformer with adapters on its attention; they and the head are trained."""
    peft = library("peft", "peft", "control-lora", ModelError)
    config = peft.LoraConfig(
        r=RANK,
        lora_alpha=SCALING * RANK,
        target_modules=["query_key_value", "output"],
        modules_to_save=["head"],
    )
    model: nn.Module = peft.get_peft_model(copy.deepcopy(pretrained(width, layers, epochs)), config)
    return model


@dataclass(frozen=True)
class AdaptedModel:
    """The transformer with adapters, by its sizes; no model of the library, because its base is made here."""

    width: int
    layers: int
    epochs: int

    def maker(self, data_dir: Path | None) -> Callable[[], nn.Module]:
        """The function that makes the model."""
        return functools.partial(adapted, self.width, self.layers, self.epochs)


METHODS: Mapping[str, Maker] = {
    FEDAVG: lambda rate, scale: fedavg(rate, scale["k"], weighting="uniform"),
    FEDSA: lambda rate, scale: fedsa_lora(rate, scale["k"], weighting="uniform"),
    FFA: lambda rate, scale: ffa_lora(rate, scale["k"], weighting="uniform"),
    FEDEX: lambda rate, scale: fedex_lora(rate, scale["k"], weighting="uniform"),
}
CONTENDERS = [label for label in METHODS if label != FEDAVG]
COLUMNS = {
    AFTER: score_column("existing users after fine-tuning"),
    GAIN: score_column("gain over FedAvg", "+.3f", of_one_run=False),
    BEFORE: score_column("before"),
    NEW: score_column("new users after fine-tuning"),
    "new_before/mean": score_column("before"),
    "bytes": Column("bytes", ".3g"),
    "rounds": Column("rounds", ".0f"),
    "selected": Column("tested round", ".0f"),
    "steps": Column("local steps", ".0f"),
}
CLAIMS = tuple(
    Claim(better(label, FEDAVG, who), higher(label, FEDAVG, column))
    for label in CONTENDERS
    for who, column in ((EXISTING_AFTER, AFTER), (EXISTING_BEFORE, BEFORE), (NEW_AFTER, NEW))
)


def _runs(scale: Scale, seed: int) -> Sequence[PaperRun]:
    division = {"new_clients": 0.2, "validation": scale["validation"], "test": 0.2, "min_samples": 10}
    data = Data("mnist", dirichlet(scale["clients"], 0.3), seed, division, rows=scale["rows"])
    model = AdaptedModel(scale["width"], scale["layers"], scale["epochs"])
    settings = {
        "rounds": scale["rounds"],
        "cohort": scale["cohort"],
        "batch_size": scale["batch"],
        "seed": seed,
        "evaluation": Evaluation(
            every=scale["every"], users=scale["users"], steps=scale["k"], patience=scale["patience"]
        ),
    }
    measures: tuple[Measure, ...] = (costs, users, functools.partial(learning, group=USERS), rounds_run)
    return [
        Training(label, data, model, make(scale.rate(label, RATES[1]), scale), settings, measures)
        for label, make in METHODS.items()
    ]


SMOKE: dict[str, Any] = {
    **{"rounds": 2, "cohort": 2, "every": 2, "users": 2, "k": 2, "patience": None, "validation": 0.0},
    **{"batch": 16, "clients": 5, "rows": 400, "width": 8, "layers": 1, "epochs": 1},
}
SMALL: dict[str, Any] = {**SMOKE, "rounds": 20, "cohort": 5, "every": 10, "users": None, "k": 5, "clients": 20}
MEDIUM: dict[str, Any] = {
    **{**SMALL, "rounds": 120, "patience": 4, "validation": 0.15, "rows": 1600},
    **{"width": 16, "layers": 1, "epochs": 15},
}
LONG: dict[str, Any] = {**MEDIUM, "rounds": 500, "rows": None, "clients": 100, "width": 64, "layers": 4, "k": 20}
TUNED: dict[str, Any] = {"tuning": digits_tuning(dict.fromkeys(METHODS, RATES)), "settling": CONVERGED}

LORA = Reproduction(
    name="control-lora",
    paper="control",
    source="MNIST from a base for digits",
    title="adapters",
    scales={
        "smoke": sized(seeds=1, minutes=0.1, **SMOKE),
        "small": sized(seeds=2, minutes=1, **{**SMALL, "rows": 1600}),
        "medium": sized(seeds=10, minutes=10, **MEDIUM, **TUNED),
        "paper": sized(seeds=10, minutes=1000, **LONG, **TUNED),
    },
    runs=_runs,
    columns=COLUMNS,
    claims=CLAIMS,
    figures=(by_method("gain", GAIN, "Adapters: existing users after fine-tuning", CONTENDERS),),
    derive=personal_gains,
    notes=(
        "No paper has these numbers. The claims are our questions.",
        "The base is a small transformer that learned scikit-learn's digits, 8 by 8 pixels, in one place. Clients have "
        "MNIST's digits, brought to that size and mixed by Dirichlet(0.3). Adapters of rank 4 on the attention and the "
        "head are trained by plain SGD; the head is shared in all methods. FedAvg averages both factors (FedIT).",
        "Every method has one tuned number, its rate, with four candidates, by the validation rows of existing users "
        "after fine-tuning. Fine-tuning is K steps at that rate. Clients count equally.",
    ),
)
