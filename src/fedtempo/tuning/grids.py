"""The papers' own grids, as data: what each searched over, and what it held fixed meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

RATES = [0.005, 0.01, 0.05, 0.1, 0.5]
"""Learning rates of the FedDecay sweeps as released; its Table 2 prints {0.005, 0.01, ..., 1.0}."""
EPOCHS = [1, 3]
STRENGTHS = [0.05, 0.1, 0.5, 0.8]
"""Regularisation rates as released; Table 2 prints {0.05, 0.1, 0.2, 0.5, 0.9}, yet reports 0.8."""
START_RATES = [3.0, 1.0, 0.3, 0.1, 0.03, 0.01]
DECAYS = [0.9996, 0.999, 0.996, 0.99]
WEIGHT_DECAYS = [1e-4, 1e-3, 1e-2, 5e-2, 1e-1]


@dataclass(frozen=True)
class PaperGrid:
    """An algorithm's table with what is fixed, and the values tried, by field."""

    about: str
    algorithm: Mapping[str, Any]
    choices: Mapping[str, list[Any]]


def _per_round(value: float, factor: float) -> dict[str, Any]:
    return {"schedule": "per_round", "value": value, "factor": factor}


def _feddecay(decay: str) -> PaperGrid:
    return PaperGrid(
        f"FedDecay, Table 2 as released: {decay} decay, 3 epochs",
        {"name": "feddecay", "epochs": 3, "decay": decay, "per": "epoch_displacement"},
        {"algorithm.lr": RATES, "algorithm.beta": [0.2, 0.4, 0.6, 0.8]},
    )


def _fixed_weight_decay(name: str, text: str) -> PaperGrid:
    return PaperGrid(
        f"FedNAR, Figure 2: weight decay of {text} around FedAvg, 20 steps",
        {
            "name": name,
            "max_norm": 10.0,
            "around": {"name": "fedavg", "lr": _per_round(0.01, 0.998), "steps": 20},
        },
        {"algorithm.weight_decay": WEIGHT_DECAYS},
    )


def _over_rounds(name: str, about: str, lr: Any, steps: Any, choices: Mapping[str, list[Any]]) -> PaperGrid:
    server_lr: Any = _per_round(1.0, 0.9996) if name == "fedavg" else 0.3
    # Algorithm 1 weighs clients by samples; Algorithm 3 (FedAdam) takes the plain mean and corrects Adam's bias.
    adam = {"weighting": "uniform", "bias_correction": True}
    own: Mapping[str, Any] = {"weighting": "samples"} if name == "fedavg" else adam
    algorithm = {"name": name, **own, "lr": lr, "steps": steps, "server_lr": server_lr}
    return PaperGrid(f"decaying K, Table 4: {about}, K_0 = 10", algorithm, choices)


SERVER = {"algorithm.server_lr.value": START_RATES, "algorithm.server_lr.factor": DECAYS}

GRIDS: dict[str, PaperGrid] = {
    "feddecay": _feddecay("exponential"),
    "feddecay_linear": _feddecay("linear"),
    "fedavg": PaperGrid(
        "FedDecay, Table 2: FedAvg", {"name": "fedavg"}, {"algorithm.lr": RATES, "algorithm.epochs": EPOCHS}
    ),
    "fomaml": PaperGrid(
        "FedDecay, Table 2 as released: FOMAML, 3 epochs",
        {"name": "fomaml", "epochs": 3},
        {"algorithm.lr": RATES},
    ),
    "ditto": PaperGrid(
        "FedDecay, Table 2 as released: Ditto",
        {"name": "ditto"},
        {"algorithm.lr": RATES, "algorithm.epochs,algorithm.personal_epochs": EPOCHS, "algorithm.lam": STRENGTHS},
    ),
    "fedbn": PaperGrid(
        "FedDecay, Table 2: FedBN", {"name": "fedbn"}, {"algorithm.lr": RATES, "algorithm.epochs": EPOCHS}
    ),
    "fedem": PaperGrid(
        "FedDecay, Table 2: FedEM, 3 components",
        {"name": "fedem", "components": 3},
        {"algorithm.lr": RATES, "algorithm.epochs": EPOCHS},
    ),
    "pfedme": PaperGrid(
        "FedDecay, Table 2 as released: pFedMe; K counts local rounds, the paper's epochs",
        {"name": "pfedme"},
        {
            "algorithm.lr,algorithm.personal_lr": RATES,
            "algorithm.local_rounds": EPOCHS,
            "algorithm.lam": STRENGTHS,
            "algorithm.inner_steps": [1, 3],
        },
    ),
    "fednar": _fixed_weight_decay("fednar", "FedNAR"),
    "clip_then_decay": _fixed_weight_decay("clip_then_decay", "clipping first"),
    "constant_k": _over_rounds("fedavg", "constant rate and K", 0.3, 10, {**SERVER, "algorithm.lr": START_RATES}),
    "decaying_lr": _over_rounds(
        "fedavg",
        "decaying client rate",
        _per_round(0.3, 0.999),
        10,
        {**SERVER, "algorithm.lr.value": START_RATES, "algorithm.lr.factor": DECAYS},
    ),
    "decaying_k": _over_rounds(
        "fedavg",
        "decaying K",
        0.3,
        _per_round(10, 0.9996),
        {**SERVER, "algorithm.lr": START_RATES, "algorithm.steps.factor": DECAYS},
    ),
    "decaying_k_adam": _over_rounds(
        "fedadam",
        "decaying K under FedAdam",
        1.0,
        _per_round(10, 0.9996),
        {"algorithm.server_lr": START_RATES, "algorithm.lr": START_RATES, "algorithm.steps.factor": DECAYS},
    ),
    "pflego": PaperGrid(
        "PFLEGO, Figure 4: its six tau (the paper names no search over rates)",
        {"name": "pflego", "head_lr": 0.007, "server_lr": 0.001},
        {"algorithm.steps": [5, 10, 25, 50, 75, 100]},
    ),
}
