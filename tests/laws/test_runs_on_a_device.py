"""Everything around training is the same on a device: folders, serving, export, compression, privacy, clocks, studies.

The device is that of `tests/twin.py`; equal means 1e-6, and the same bits where nothing takes a norm.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fedtempo as ft
from fedtempo import algorithms as a
from tests import zoo
from tests.slow import slow_but
from tests.twin import on_twin

Settings = dict[str, Any]


def settings(**others: object) -> Settings:
    usual: Settings = {
        "model": zoo.model("mlp"),
        "data": zoo.data("mlp"),
        "algorithm": a.fedavg(lr=0.1, steps=3),
        "rounds": 3,
        "cohort": 4,
        "batch_size": 4,
        "seed": 1,
        "evaluation": ft.Evaluation(every=1),
        "block": 4,  # a device would choose by its free memory, and a stored run goes on with its own
        "progress": False,
    }
    return {**usual, **others}


class Own(nn.Module):
    """A module of a user's, with a buffer and tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.head = nn.Linear(6, 4)
        self.register_buffer("scale", torch.full((6,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(torch.tanh(self.second(torch.tanh(self.first(x * self.scale)))))
        return outputs


def own_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """With a constant that stays on the processor, and one made where the outputs are."""
    weights = torch.tensor([1.0, 2.0, 1.0, 0.5], device=outputs.device)
    return nn.functional.cross_entropy(outputs, targets, weight=weights) * torch.tensor(0.5)


def own_metric(outputs: Tensor, targets: Tensor) -> float:
    return float((outputs.numpy().argmax(-1) == targets.numpy()).mean())


RUNS: dict[str, Callable[[], Settings]] = {
    "own module, loss and metric": lambda: settings(
        model=Own,
        loss=own_loss,
        metrics=[ft.Metric(own_metric, higher_is_better=True, per="client"), "balanced_accuracy"],
    ),
    "side by side with own loss": lambda: settings(model=Own, loss=own_loss, backend="vectorised"),
    "private": lambda: settings(
        aggregator=ft.robust.private_mean(1.0, 1.0, delta=1e-3, noise_seed=3), cohort=ft.cohort.bernoulli(0.5), rounds=2
    ),
    "compressed": lambda: settings(algorithm=a.scaffold(lr=0.1, steps=3, compress=ft.compress.top_k(0.3))),
    "compressed with EF21": lambda: settings(algorithm=zoo.ALGORITHMS["fednar with EF21"], backend="vectorised"),
    "asynchronous": lambda: settings(
        asynchrony=ft.asynchrony.fedbuff(3), devices=ft.devices.phones(), algorithm=a.fedavg(lr=0.1, steps=3)
    ),
    "on simulated devices": lambda: settings(devices=ft.devices.phones(), deadline=1e4, over_selection=0.3),
    "partial work": lambda: settings(devices=ft.devices.phones(), deadline=40.0, partial_work=True),
    "robust": lambda: settings(aggregator=ft.robust.median(), cohort=6),
    "admission": lambda: settings(admission=ft.Admission(max_norm=1.0), faults=ft.Faults(nan=0.3)),
    "dropout": lambda: settings(model=zoo.model("dropout"), data=zoo.data("dropout")),
    "dropout side by side": lambda: settings(
        model=zoo.model("dropout"), data=zoo.data("dropout"), backend="vectorised"
    ),
    "augmented": lambda: settings(
        model=zoo.model("cnn"),
        data=zoo.data("cnn"),
        augment=ft.data.augment.random_flip(),
        algorithm=a.fedavg(lr=0.1, steps=2),
    ),
    "LoRA": lambda: settings(model=zoo.model("lora"), data=zoo.data("lora"), algorithm=zoo.LORA["fedex_lora"]),
    "heads of their own": lambda: settings(algorithm=a.pflego(head_lr=0.1, server_lr=0.2, steps=3)),
    "batches of all rows": lambda: settings(batch_size=None, backend="vectorised"),
    "float64": lambda: settings(dtype=torch.float64),
    "the last loss": lambda: settings(algorithm=a.fedavg(lr=ft.schedules.by_own_loss(0.1), steps=3)),
}
OFTEN = ["own module, loss and metric", "compressed", "dropout side by side"]


def apart(name: str) -> list[float]:
    """By how much models, personal tensors and scores differ between the processor and the device."""
    here, there = (ft.run(**RUNS[name](), device=device) for device in ("cpu", "twin"))
    tensors = [(here.last.shared, there.last.shared)]
    tensors += [(here.client_state(client), there.client_state(client)) for client in range(6)]
    pairs = [(one[n].cpu(), other[n].cpu()) for one, other in tensors for n in one]
    found = [float((one.double() - other.double()).abs().max()) for one, other in pairs if one.numel()]
    losses = [(one.loss, other.loss) for one, other in zip(here.history, there.history, strict=True)]
    found += [abs(one - other) for one, other in losses if one == one]
    if here.scores is not None:
        one, other = (json.dumps(result.scores.summary()) for result in (here, there) if result.scores is not None)
        found.append(0.0 if _rounded(json.loads(one)) == _rounded(json.loads(other)) else 1.0)
    return found


def _rounded(values: Any) -> Any:
    if isinstance(values, dict):
        return {name: _rounded(value) for name, value in values.items()}
    return f"{values:.4f}"


@pytest.mark.parametrize("name", slow_but(OFTEN, RUNS, "they share their ways with those that run every time"))
def test_a_run_is_the_same_on_a_device(name: str) -> None:
    assert max(on_twin(apart, name)) <= 1e-6


def afterwards(folder: str) -> dict[str, float]:
    """What is done with a finished run: served, fine-tuned, exported, stored, resumed; on the device and not."""
    found = {}
    runs = {}
    for device in ("cpu", "twin"):
        given = settings(algorithm=a.ditto(lr=0.1, steps=3), out=Path(folder) / device, device=device)
        ft.run(**{**given, "rounds": 2})
        runs[device] = ft.run(**{**given, "rounds": 4}, resume=True)
    here, there = runs["cpu"], runs["twin"]
    found["digests differ"] = float(here.digest() != there.digest())
    rows = zoo.data("mlp").client(1)
    x = rows["x"]
    one, other = (result.personalize(rows, steps=2, lr=0.1) for result in (here, there))
    found["personalize"] = float((one(x) - other(x).cpu()).abs().max())
    one, other = here.model(), there.model().cpu()
    found["model"] = float((one(x) - other(x)).detach().abs().max())
    moved = ft.run(
        **{**settings(algorithm=a.ditto(lr=0.1, steps=3), out=Path(folder) / "twin"), "rounds": 5}, resume=True
    )
    found["goes on elsewhere"] = float(next(iter(moved.last.shared.values())).device.type != "cpu")
    saved = there.save(Path(folder) / "saved.ft")
    found["saved"] = float(ft.load_result(saved).digest() != there.digest())
    return found


@pytest.mark.slow("storing and serving share what a run on the processor does")
def test_what_comes_after_training_is_the_same(tmp_path: Path) -> None:
    found = on_twin(afterwards, str(tmp_path))
    assert not {name: value for name, value in found.items() if value > 1e-6}


EXPERIMENT = """
rounds = 2
cohort = 3
batch_size = 8
[data]
name = "digits"
[data.split]
name = "dirichlet"
clients = 6
alpha = 1.0
[model]
name = "mlp"
inputs = 64
hidden = [8]
outputs = 10
[algorithm]
name = "fedavg"
lr = 0.1
steps = 2
"""


def commands(folder: str) -> list[str]:
    """The commands with `--device`, and what they print; an error ends the process."""
    from fedtempo.cli import main

    said = []
    place = Path(folder)
    (place / "experiment.toml").write_text(EXPERIMENT)
    for arguments in (
        ["run", f"{place}/experiment.toml", "--set", "block=2", "--out", f"{place}/run", "--device", "auto", "-q"],
        ["resume", f"{place}/run", "--rounds", "3", "--device", "twin", "-q"],
        ["compare", f"{place}/experiment.toml", "--algorithms", "fedprox:mu=0.1", "--device", "twin", "-q"],
    ):
        sys.argv = ["fedtempo", *arguments]
        out = StringIO()
        with redirect_stdout(out):
            try:
                main()
            except SystemExit as end:
                said.append(f"{arguments[0]} {end.code or 0}")
            else:
                said.append(f"{arguments[0]} 0")
    return said


@pytest.mark.slow("each command takes seconds")
def test_commands_run_on_a_device(tmp_path: Path) -> None:
    assert on_twin(commands, str(tmp_path)) == ["run 0", "resume 0", "compare 0"]
