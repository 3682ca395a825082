"""FedDecay, Table 1: how much each method cares about fast personalization against being good at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F

from fedtempo.papers.framework.claims import Answer, Claim, Rule, Verdict, all_of, at_least, higher
from fedtempo.papers.framework.definitions import Calculation, Column, Curve, Measured, PaperRun, Scale, Values, sized
from fedtempo.papers.framework.figures import Curves
from fedtempo.papers.framework.outcomes import Outcome
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.papers.framework.svg import Axes
from fedtempo.params import Params, subtract
from fedtempo.tasks import Batch
from fedtempo.theory import actual_method_gradient, fedavg_ratio, feddecay_ratio, fomaml_ratio, taylor_terms

BETAS = (0.2, 0.4, 0.6, 0.8)
FEDSGD, FEDAVG, FOMAML = "FedSGD", "FedAvg", "FOMAML"
FEDDECAY = {beta: f"FedDecay, beta {beta}" for beta in BETAS}
LABELS = (FEDSGD, *FEDDECAY.values(), FEDAVG, FOMAML)
STEPS, MORE_STEPS, MANY_STEPS = 3, 10, 1000
WITHIN = 0.002
"""How far a ratio that is measured with a small learning rate may be from its limit."""


def closed_ratio(method: str, beta: float, steps: float) -> float:
    """Table 1's ratio in units of the learning rate."""
    if method == FOMAML:
        return fomaml_ratio(steps, lr=1.0)
    return fedavg_ratio(steps, lr=1.0) if method == FEDAVG else feddecay_ratio(beta, steps, lr=1.0)


def printed_ratio(beta: float, steps: int) -> float:
    """The ratio of the coefficients that equation 10 prints, without the factor eta beta it forgets."""
    return (1 - beta ** (steps - 1)) / ((1 + beta) * (1 - beta))


def ratios(method: str, beta: float, lr: float, clients: int, batches: int) -> Measured:
    """The closed forms, and the ratio that local steps on a logistic regression really have."""
    closed = {
        "ratio": closed_ratio(method, beta, STEPS),
        "ratio_10": closed_ratio(method, beta, MORE_STEPS),
        "ratio_1000": closed_ratio(method, beta, MANY_STEPS),
        "limit": closed_ratio(method, beta, math.inf),
        "walked": walked_ratio(method, beta, lr, clients, batches),
        "printed": printed_ratio(beta, STEPS) if method in FEDDECAY.values() else math.nan,
    }
    steps = tuple(range(1, 31))
    curve = Curve(tuple(map(float, steps)), tuple(closed_ratio(method, beta, k) for k in steps))
    return Measured(closed, {"ratio": curve})


def walked_ratio(method: str, beta: float, lr: float, clients: int, batches: int) -> float:
    """The ratio over `lr`, from the expected change that clients send after walking their local steps.

    The change is fitted, by least squares, as c1 AvgGrad - c2 AvgGradInner. FOMAML's last gradient is the difference
    of FedAvg's sums over K and K - 1 steps.
    """
    params, data = _problem(clients, batches)
    ones = [1.0] * STEPS
    factors = ones if method in (FEDAVG, FOMAML) else [beta**j for j in range(STEPS)]
    sent = actual_method_gradient(_loss, params, data, factors, lr)
    if method == FOMAML:
        sent = subtract(sent, actual_method_gradient(_loss, params, data, ones[1:], lr))
    terms = taylor_terms(_loss, params, data)
    directions = torch.stack([terms.avg_grad["weights"], -terms.avg_grad_inner["weights"]], dim=1)
    first, second = torch.linalg.lstsq(directions, sent["weights"].unsqueeze(1)).solution.squeeze(1).tolist()
    ratio: float = second / first / lr
    return round(ratio, 9) + 0.0


def _problem(clients: int, batches: int, features: int = 6, rows: int = 8) -> tuple[Params, list[list[Batch]]]:
    """Clients whose labels follow weights of their own around common ones."""
    random = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    common = draw(features)
    data = []
    for _ in range(clients):
        own = common + draw(features)
        inputs = [draw(rows, features) for _ in range(batches)]
        data.append([{"x": x, "y": torch.sign(x @ own + 0.5 * draw(rows))} for x in inputs])
    return {"weights": 0.1 * draw(features)}, data


def _loss(params: Params, batch: Batch) -> torch.Tensor:
    return F.softplus(-batch["y"] * (batch["x"] @ params["weights"])).mean()


def _runs(scale: Scale, seed: int) -> Sequence[PaperRun]:
    betas = {FEDSGD: 0.0, **{label: beta for beta, label in FEDDECAY.items()}, FEDAVG: 1.0, FOMAML: 1.0}
    return [
        Calculation(label, {"method": label, "beta": beta, **scale.settings}, ratios) for label, beta in betas.items()
    ]


def _reported() -> Values:
    """Table 1's formulas, as printed, with eta = 1."""

    def row(ratio: float, ratio_10: float, limit: float) -> dict[str, float]:
        return {"ratio": ratio, "ratio_10": ratio_10, "limit": limit}

    decaying = {
        label: row((b - b**3) / (1 - b**2), (b - b**10) / (1 - b**2), b / (1 - b**2)) for b, label in FEDDECAY.items()
    }
    return {
        FEDSGD: row(0, 0, 0),
        **decaying,
        FEDAVG: row((3 - 1) / 2, (10 - 1) / 2, math.inf),
        FOMAML: row(3 - 1, 10 - 1, math.inf),
    }


def _agrees(column: str, expected: Mapping[str, float], within: float) -> Rule:
    """The column is what is expected, label by label."""

    def rule(outcome: Outcome) -> Verdict:
        gap = max(abs(outcome.mean(label, column) - value) for label, value in expected.items())
        answer = Answer.HOLDS if gap <= within else Answer.FAILS
        return Verdict(answer, f"{column}: off by at most {gap:.2g}, must be at most {within:g}")

    return rule


TABLE_1 = Reproduction(
    name="feddecay-ratios",
    paper="feddecay",
    source="Table 1",
    title="weight of AvgGradInner over that of AvgGrad, in units of the learning rate",
    scales={
        "smoke": sized(seeds=1, minutes=0.05, lr=1e-4, clients=2, batches=3),
        "small": sized(seeds=1, minutes=0.1, lr=1e-4, clients=5, batches=4),
        "medium": sized(seeds=1, minutes=0.2, lr=1e-4, clients=10, batches=5),
        "paper": sized(seeds=1, minutes=0.2, lr=1e-4, clients=10, batches=5),
    },
    runs=_runs,
    columns={
        "ratio": Column("K = 3", exact=True),
        "walked": Column("K = 3, local steps walked", exact=True),
        "printed": Column("K = 3, equation 10 as printed", exact=True),
        "ratio_10": Column("K = 10", exact=True),
        "ratio_1000": Column("K = 1000", exact=True),
        "limit": Column("K to infinity", exact=True),
    },
    claims=(
        Claim(
            "Local steps have the ratios of Table 1.",
            _agrees("walked", {label: row["ratio"] for label, row in _reported().items()}, WITHIN),
            "Table 1",
        ),
        Claim(
            "The coefficients of equation 10 have the ratio of Table 1.",
            _agrees("printed", {label: _reported()[label]["ratio"] for label in FEDDECAY.values()}, WITHIN),
            "3.2",
        ),
        Claim(
            "FedDecay's ratio grows with beta, from FedSGD's to FedAvg's.",
            all_of(*(higher(LABELS[i + 1], LABELS[i], "ratio") for i in range(len(BETAS) + 1))),
            "3.2",
        ),
        Claim(
            "With more steps FedAvg's and FOMAML's ratios grow without bound.",
            all_of(at_least(FEDAVG, "ratio_1000", 499), at_least(FOMAML, "ratio_1000", 998)),
            "3.2",
        ),
        Claim(
            "FedDecay's ratio has the limit beta / (1 - beta^2).",
            _agrees("ratio_1000", {label: b / (1 - b**2) for b, label in FEDDECAY.items()}, 1e-6),
        ),
    ),
    reported=_reported(),
    figures=(Curves("ratio", "ratio", Axes("ratio over the learning rate", "local steps K", "ratio", log_y=True)),),
    notes=(
        "The paper's values are its formulas at these K, with eta = 1.",
        "Walked: the change that clients send after three steps at learning rate 0.0001 on logistic regressions of"
        " their own, averaged over all orders of their batches and fitted as c1 AvgGrad - c2 AvgGradInner.",
        "Equation 10 (6 in the short version) forgets the factor eta beta; the appendix and Table 1 have it.",
    ),
)
