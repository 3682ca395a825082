"""The PFLEGO paper's section 3.3: passes through the body and operations of a client's round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedtempo.algorithms import Algorithm, fedper, pflego
from fedtempo.data import FederatedData
from fedtempo.models import MODELS
from fedtempo.papers.framework.claims import Claim, all_of, at_least, at_most, equal
from fedtempo.papers.framework.definitions import Calculation, Column, Measured, PaperRun, Scale, Values, sized
from fedtempo.papers.framework.figures import Sweep
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.papers.framework.svg import Axes
from fedtempo.papers.pflego.omniglot import OUTPUTS
from fedtempo.papers.pflego.setting import FEDPER, PFLEGO
from fedtempo.papers.pflego.tau_sweep import TAUS, at_tau, by_tau
from fedtempo.training.run import train

ROWS = 3
"""The rows of the client whose round is counted; costs are measured with two rows, so passes can be told apart."""


def counted(network: str, settings: Mapping[str, Any], image: tuple[int, ...], algorithm: Algorithm) -> Measured:
    """Passes through the body that one client's round really makes, and its operations per row."""
    seen: list[int] = []
    model = MODELS[network](**settings)
    model.get_submodule("body").register_forward_pre_hook(lambda module, inputs: seen.append(len(inputs[0])))
    client = {"x": np.zeros((ROWS, *image), dtype=np.float32), "y": np.arange(ROWS)}
    data = FederatedData.from_clients([client])
    rounds = train(
        model=model,
        data=data,
        algorithm=algorithm,
        rounds=1,
        cohort=1,
        batch_size=None,
        backend="serial",
        workers=1,
        evaluation=None,
        progress=False,
    )
    # Preparing the run has tried the model on the client's rows.
    seen.clear()
    report = next(rounds)
    return Measured({"passes": seen.count(ROWS), "flops": report.costs.flops / ROWS})


def _cost_runs(scale: Scale, seed: int) -> Sequence[PaperRun]:
    network, settings = scale["model"]
    algorithms = {
        PFLEGO: {tau: pflego(0.007, 0.001, tau) for tau in TAUS},
        FEDPER: {tau: fedper(0.007, tau) for tau in TAUS},
    }
    return [
        Calculation(
            at_tau(label, tau),
            {"network": network, "settings": settings, "image": (1, 28, 28), "algorithm": algorithm},
            counted,
        )
        for label, by_steps in algorithms.items()
        for tau, algorithm in by_steps.items()
    ]


def _cost_ratios(values: Values) -> Values:
    """Operations of a round over those of tau = 5, and over PFLEGO's with the same tau."""
    return {
        at_tau(label, tau): {
            "growth": values[at_tau(label, tau)]["flops"] / values[at_tau(label, TAUS[0])]["flops"],
            "against": values[at_tau(label, tau)]["flops"] / values[at_tau(PFLEGO, tau)]["flops"],
        }
        for label in (PFLEGO, FEDPER)
        for tau in TAUS
    }


COST = Reproduction(
    name="pflego-cost",
    paper="pflego",
    source="Section 3.3",
    title="what a client's round costs for six numbers of local steps",
    scales={
        "smoke": sized(seeds=1, minutes=0.1, model=("mlp", {"hidden": [8], "outputs": OUTPUTS})),
        "small": sized(seeds=1, minutes=0.3, model=("omniglot_cnn", {"outputs": OUTPUTS})),
        "medium": sized(seeds=1, minutes=0.3, model=("omniglot_cnn", {"outputs": OUTPUTS})),
        "paper": sized(seeds=1, minutes=0.3, model=("omniglot_cnn", {"outputs": OUTPUTS})),
    },
    runs=_cost_runs,
    columns={
        "passes": Column("forward passes through the body", ".0f", exact=True),
        "flops": Column("operations per row", ".3g", exact=True),
        "growth": Column("of those for tau = 5", ".2f", exact=True),
        "against": Column("of PFLEGO's", ".1f", exact=True),
    },
    reported={at_tau(PFLEGO, tau): {"passes": 2} for tau in TAUS},
    claims=(
        Claim(
            "PFLEGO passes the data through the body twice, whatever tau is; FedPer does so tau times.",
            all_of(
                *(equal(at_tau(PFLEGO, tau), at_tau(PFLEGO, TAUS[0]), "passes") for tau in TAUS[1:]),
                at_most(at_tau(PFLEGO, 100), "passes", 2),
                at_least(at_tau(FEDPER, 100), "passes", 100),
            ),
            "3.3",
        ),
        Claim(
            "PFLEGO's round is O(1) in tau (at most 10 % more operations for tau = 100 than for 5).",
            at_most(at_tau(PFLEGO, 100), "growth", 1.1),
            "1",
        ),
        Claim(
            "At tau = 50 PFLEGO's round is at least tau / 2 = 25 times cheaper than FedPer's.",
            at_least(at_tau(FEDPER, 50), "against", 25),
        ),
    ),
    figures=(
        Sweep(
            "flops",
            "flops",
            Axes("operations per row and round", "tau", "operations", log_y=True),
            by_tau(PFLEGO, FEDPER),
        ),
    ),
    derive=_cost_ratios,
    notes=(
        "The paper's Omniglot network with 55 outputs at every scale but smoke. Passes are counted while a client "
        "really trains; operations are those of forward and backward passes, and heads count too.",
    ),
)

REPRODUCTIONS = (COST,)
