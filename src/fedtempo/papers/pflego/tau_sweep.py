"""The PFLEGO paper's Figure 4: PFLEGO against FedRecon on Omniglot, for six numbers of local steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedtempo.papers.framework.claims import Claim, higher, lower
from fedtempo.papers.framework.definitions import PaperRun, Scale, TunedSetting, Tuning, sized
from fedtempo.papers.framework.figures import Curves, Sweep
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.papers.framework.svg import Axes
from fedtempo.papers.pflego.omniglot import (
    FEDRECON,
    MEDIUM,
    PAPER,
    RECONSTRUCTION,
    ROTATED,
    SMALL,
    SMALL_CNN,
    SMALLER,
    SMOKE,
    eight_methods,
    omniglot_training,
)
from fedtempo.papers.pflego.setting import ADAM, COLUMNS, CONVERGED, LOSS, PFLEGO, SERVED, TUNED
from fedtempo.randomness import generator
from fedtempo.schedules import sequence

TAUS = (5, 10, 25, 50, 75, 100)
FEWER: dict[str, Any] = {
    **MEDIUM,
    "rounds": 600,
    "every": 30,
    "clients": 16,
    "between": (1, 9),
    "model": ("cnn", SMALL_CNN),
}
RHOS = (0.001, 0.003, 0.01, 0.03)
"""The paper's and larger ones. Of 0.003, 0.01 and 0.03, 9 of 12 contestants chose the smallest."""


def at_tau(method: str, tau: int) -> str:
    """A run's label."""
    return f"{method}, tau = {tau}"


def _tau_runs(scale: Scale, seed: int) -> Sequence[PaperRun]:
    low, high = scale["between"]
    sizes = generator(seed, "participants").integers(low, high + 1, scale["rounds"]).tolist()
    runs = []
    for tau in TAUS:
        now = replace(scale, settings={**scale.settings, "tau": tau})
        methods = eight_methods(now, f"tau {tau}: ")
        runs += [
            omniglot_training(at_tau(label, tau), methods[label], now, seed, sequence(sizes, over="round"))
            for label in (PFLEGO, FEDRECON)
        ]
    return runs


def by_tau(*methods: str) -> dict[str, dict[float, str]]:
    """The runs of these methods against tau."""
    return {method: {float(tau): at_tau(method, tau) for tau in TAUS} for method in methods}


FIGURE_4 = Reproduction(
    name="pflego-fedrecon",
    paper="pflego",
    source="Figure 4",
    title="Omniglot, PFLEGO and FedRecon for six numbers of local steps",
    scales={
        "smoke": sized(seeds=1, minutes=0.1, **SMOKE),
        "small": sized(seeds=3, minutes=2.5, **{**SMALL, "rounds": 48, "every": 12, "beta": 0.1}),
        "medium": sized(
            seeds=5,
            minutes=60,
            tuning=Tuning(
                {
                    f"tau {tau}: {label}": TunedSetting(at_tau(label, tau), RHOS)
                    for tau in TAUS
                    for label in (PFLEGO, FEDRECON)
                },
                "existing_after/best",
                settings={"rounds": 200},
            ),
            settling=CONVERGED,
            **FEWER,
        ),
        "paper": sized(seeds=1, minutes=50_000, **{**PAPER, "rounds": 5000, "every": 500, "rho": 0.001}),
    },
    runs=_tau_runs,
    columns=COLUMNS,
    claims=(
        *(
            Claim(
                f"tau = {tau}: PFLEGO is more accurate than FedRecon.",
                higher(at_tau(PFLEGO, tau), at_tau(FEDRECON, tau), TUNED),
                "4.4",
            )
            for tau in TAUS
        ),
        Claim(
            "PFLEGO converges faster with larger tau (100 against 5).",
            lower(at_tau(PFLEGO, 100), at_tau(PFLEGO, 5), LOSS),
        ),
    ),
    figures=(
        Sweep("tau", TUNED, Axes("test accuracy after own steps", "tau", "accuracy"), by_tau(PFLEGO, FEDRECON)),
        Curves(
            "accuracy",
            "existing_after",
            Axes("test accuracy over rounds", "round", "accuracy"),
            tuple(at_tau(method, tau) for method in (PFLEGO, FEDRECON) for tau in (5, 25, 100)),
        ),
    ),
    notes=(
        SERVED,
        "In each round a random number of clients takes part: 4 to 28 of 50 in the paper, 1 to 9 of 16 at small scale.",
        SMALLER,
        "Small: beta is 0.1 and rho 0.003 for every tau; in the paper 0.007 and 0.001 for 5,000 rounds.",
        ROTATED,
        RECONSTRUCTION,
        ADAM,
    ),
)
