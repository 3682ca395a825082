"""Private runs: what is refused before training, and the guarantee that a run ends with.

Towards everybody but the server, a private run publishes its models and its reports. Nothing in them may be a function
of a training client's data but through the clipped and noised mean. What a run usually publishes besides is left out
(losses, measurements, norms, failures, who took part, rows and steps) or refused here, with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from fedtempo.data.federated import FederatedData
from fedtempo.errors import ConfigError, require, shown
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.federation.federation import Federation
from fedtempo.schedules import Now
from fedtempo.server.admission import Admission
from fedtempo.server.cohort import Cohort
from fedtempo.server.privacy_accounting import Adjacency, Guarantee, Sampling, accountant_name, spent
from fedtempo.server.robust import Aggregator
from fedtempo.training.checks.settings import sampled_rounds

USUAL_DELTA = 1e-5
WITHHELD = "withheld (private)"
"""Replaces the description of the data in what a private run publishes."""
OUTSIDE = {
    "control": "control variates (SCAFFOLD)",
    "buffers": "statistics of the data, such as BatchNorm's; keep them at home with average_buffers=False or fedbn",
    "squared_norm": "squared norms (FedExP)",
}
"""Groups of an upload that the mechanism does not clip and noise, in words."""
_TELLING: dict[str, tuple[Any, ...]] = {
    "loss_ratio": (2.0, 0.9, 0.5, 0.1, 0.001),
    "plateaus": (1, 2, 7),
    "total_samples": (3, 1_000_003),
}
"""What schedules may not look at in a private run, with values to try: all of it comes from clients, without noise."""


def check_private(
    federation: Federation,
    rule: Cohort,
    rounds: int,
    evaluation: Evaluation | None,
    quorum: int,
    over_selection: float,
) -> None:
    """Refuse everything that would leave a private run beside the mechanism."""
    policy, algorithm = federation.policy, federation.algorithm
    if policy is None or not policy.aggregator.private:
        return
    uniform = algorithm.weighting == "uniform"
    require(uniform, "weighting", "'uniform' for a private mean", algorithm.weighting)
    require(not algorithm.uploads.nothing, "algorithm", "one that shares something, for a private mean", algorithm)
    for group in federation.expected:
        if group != "delta":
            what = OUTSIDE.get(group, f"the group {group!r}")
            raise ConfigError(
                f"algorithm must upload displacements alone for a private mean. Got {algorithm!r} on this model, "
                f"which also uploads {what}, neither clipped nor noised."
            )
    _check_admission(policy.admission)
    require(quorum == 1, "quorum", "1 for a private mean: how many came is not published", quorum)
    require(over_selection == 0, "over_selection", "0 for a private mean: cohorts are drawn, not raced", over_selection)
    held_out = len(federation.problem.data.held_out) > 0
    reason = "None for a private mean on data without held-out clients: scores of training clients are not private"
    require(evaluation is None or held_out, "evaluation", reason, evaluation)
    check_unmeasured(federation.problem.data)
    _check_schedules(federation, rule, rounds)


def check_unmeasured(data: FederatedData) -> None:
    """Numbers measured on all clients' rows are refused: through them, each client moves all others' uploads."""
    if data.preparation is not None and data.preparation.measured and len(data.clients) > 1:
        raise ConfigError(
            "data must not be scaled or filled with means of training rows for a private mean: they depend on every "
            "client, without noise. Got standardise=True or missing='mean'; scale the columns with constants of your "
            "own before, and use missing='zero'."
        )


def _check_admission(admission: Admission) -> None:
    reason = "None for a private mean: the running median of norms is not private"
    require(admission.max_ratio is None, "admission.max_ratio", reason, admission.max_ratio)
    rule = "True for a private mean: an upload that is not finite cannot be clipped"
    require(admission.checks, "admission.checks", rule, admission.checks)


def _check_schedules(federation: Federation, rule: Cohort, rounds: int) -> None:
    """Schedules that follow the loss, or that weigh by everybody's samples, are refused."""
    clients = len(federation.problem.data.clients)
    for round_number in sampled_rounds(rounds):
        now = federation.problem.now(round_number, 1.0)
        now = replace(now, cohort=rule.expected(now, clients))
        for name, value in _schedules(federation, rule, clients):
            plain = value(now)
            for field, tries in _TELLING.items():
                if any(value(replace(now, **{field: other})) != plain for other in tries):
                    raise ConfigError(
                        f"{name} must not depend on {field} for a private mean: it is known from clients without noise."
                        f" Got {shown(plain)}, which changes with it."
                    )


def _schedules(federation: Federation, rule: Cohort, clients: int) -> Iterator[tuple[str, Callable[[Now], float]]]:
    yield "cohort", lambda now: rule.expected(now, clients)
    for phase in federation.algorithm.phases:
        yield phase.length.unit, phase.length.count.at
        for name, schedule in phase.schedules:
            yield name, schedule.at
    for name, schedule in federation.algorithm.server.schedules:
        yield name, schedule.at


def hides_cohorts(federation: Federation, rule: Cohort) -> bool:
    """Whether who takes part is a secret of the server's."""
    return federation.private and rule.sampling != "none"


def guarantee(federation: Federation, rule: Cohort, rounds: int, releases: int | None = None) -> Guarantee | None:
    """What a run of so many rounds guarantees its clients; None for a run without a private mean.

    `releases` is the number of means that may have been seen, where a deployment had to repeat rounds.
    """
    aggregator = federation.policy.aggregator if federation.policy is not None else None
    if aggregator is None or not aggregator.private:
        return None
    rates, sampling = _rates(federation, rule, rounds)
    repeated = max(0, (releases or rounds) - rounds)
    if repeated and rates:
        rates = (*rates[:-1], (rates[-1][0], rates[-1][1] + repeated))
    adjacency: Adjacency = "add-remove" if sampling == "poisson" else "replace-one"
    name = accountant_name()
    delta = _delta(aggregator, len(federation.problem.data.clients))
    secure = aggregator.noise_seed is None
    words = f"Renyi accountant, {name}" if name else "the extra 'privacy' is not installed"
    if sampling == "fixed-size" and name:
        words = f"Renyi accountant for fixed sizes (Balle et al., 2018), {name}"
    value: float | None = 0.0 if not rates else None
    if rates and name:
        value = spent(aggregator.noise, rates, delta, sampling, adjacency) if secure else float("inf")
    charged = sum(count for _, count in rates)
    return Guarantee(value, delta, adjacency, sampling, words, aggregator.noise, charged, rates, secure)


def _delta(aggregator: Aggregator, clients: int) -> float:
    return min(USUAL_DELTA, 0.1 / clients) if aggregator.delta is None else aggregator.delta


def _rates(federation: Federation, rule: Cohort, rounds: int) -> tuple[tuple[tuple[float, int], ...], Sampling]:
    """Shares of clients with their numbers of rounds, and how they were drawn; full cohorts are not drawn at all."""
    clients = len(federation.problem.data.clients)
    if rule.sampling == "none":
        return ((1.0, _most_often(rule, rounds)),) if rounds else (), "none"
    counts: Counter[float] = Counter()
    for round_number in range(rounds):
        counts[rule.expected(federation.problem.now(round_number, 1.0), clients) / clients] += 1
    everybody = rule.sampling == "fixed-size" and set(counts) == {1.0}
    return tuple(sorted(counts.items())), "none" if everybody else rule.sampling


def _most_often(rule: Cohort, rounds: int) -> int:
    """In how many rounds one client can take part: cohorts that were written down may spread the work."""
    if not rule.lists:
        return rounds
    uses: Counter[int] = Counter()
    for place, members in enumerate(rule.lists):
        times = rounds // len(rule.lists) + (place < rounds % len(rule.lists))
        uses.update(dict.fromkeys(members, times))
    return max(uses.values())
