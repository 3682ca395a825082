"""The decaying-K paper's hyper-parameters (Table 5) and the fraction of steps that follows from them (Table 1)."""

from __future__ import annotations

from collections.abc import Sequence

from fedtempo.papers.decaying_k.schemes import PAPER_ROUNDS, USED, SchemeRates
from fedtempo.papers.framework.claims import Claim, all_of, near
from fedtempo.papers.framework.definitions import Calculation, Column, Measured, PaperRun, Scale, sized
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.schedules import decaying_k
from fedtempo.theory import step_fraction

STACKOVERFLOW_RATES = (
    SchemeRates(10, 0.3, 1.0, 1.0, 0.999, 0.9996, adam=True),
    SchemeRates(33, 0.3, 1.0, 1.0, 0.999, 0.9996, adam=True),
    SchemeRates(100, 0.3, 1.0, 1.0, 0.9996, 0.9996, adam=True),
)
FEMNIST_RATES = (
    SchemeRates(3, 1.0, 0.9996, 0.3, 0.9996, 0.9996),
    SchemeRates(10, 1.0, 0.9996, 0.3, 0.9996, 0.9996),
    SchemeRates(33, 1.0, 0.9996, 0.3, 0.9996, 0.999),
)
SHAKESPEARE_RATES = (
    SchemeRates(10, 1.0, 0.9996, 1.0, 0.9996, 0.9996),
    SchemeRates(33, 1.0, 0.999, 1.0, 0.999, 0.9996),
    SchemeRates(100, 1.0, 0.996, 1.0, 0.996, 0.9996),
)
FRACTIONS = {
    "StackOverflow": (STACKOVERFLOW_RATES, (0.55, 0.51, 0.50)),
    "FEMNIST": (FEMNIST_RATES, (0.65, 0.55, 0.26)),
    "Shakespeare": (SHAKESPEARE_RATES, (0.55, 0.51, 0.50)),
}


def _fraction(k: int, decay: float, rounds: int) -> Measured:
    return Measured({USED: step_fraction(decaying_k(k, decay), rounds)})


def _fraction_runs(scale: Scale, seed: int) -> Sequence[PaperRun]:
    return [
        Calculation(f"{name}, K = {row.k}", {"k": row.k, "decay": row.k_decay, "rounds": scale["rounds"]}, _fraction)
        for name, (rates, _) in FRACTIONS.items()
        for row in rates
    ]


_PRINTED = {
    f"{name}, K = {row.k}": value
    for name, (rates, values) in FRACTIONS.items()
    for row, value in zip(rates, values, strict=True)
}

FRACTION = Reproduction(
    name="decaying-k-fractions",
    paper="decaying-k",
    source="Table 1, last row",
    title="the fraction of SGD steps that decaying K uses",
    scales={
        "smoke": sized(seeds=1, minutes=0.01, rounds=40),
        "small": sized(seeds=1, minutes=0.01, rounds=PAPER_ROUNDS),
        "medium": sized(seeds=1, minutes=0.01, rounds=PAPER_ROUNDS),
        "paper": sized(seeds=1, minutes=0.01, rounds=PAPER_ROUNDS),
    },
    runs=_fraction_runs,
    columns={USED: Column("fraction of SGD steps used", ".4f", exact=True)},
    reported={name: {USED: value} for name, value in _PRINTED.items()},
    claims=(
        Claim(
            "All nine fractions, to the two digits that are printed.",
            all_of(*(near(name, USED, value, 0.0051) for name, value in _PRINTED.items())),
            "Table 1",
        ),
        Claim(
            "Clients perform up to 3.8 times fewer steps.",
            near("FEMNIST, K = 33", USED, 1 / 3.8, 0.01),
            "abstract",
        ),
    ),
    notes=("The schedule alone decides: K_t = ceil(K_0 d^t), rounds counted from 0.",),
)
