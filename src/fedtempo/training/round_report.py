"""One round, as the caller sees it and as it is stored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, overload

import numpy as np

from fedtempo.evaluation.protocol import Scores, UserScores
from fedtempo.federation.costs import Costs
from fedtempo.params import Params
from fedtempo.server.sums import Failure
from fedtempo.support.display import html_of


class Clients(Sequence[int]):
    """Client numbers that behave like a tuple and take four bytes each: a run keeps those of every round."""

    __slots__ = ("_numbers",)

    def __init__(self, numbers: Iterable[int]) -> None:
        wide = np.fromiter(numbers, dtype=np.int64)
        self._numbers = wide.astype(np.int32) if wide.max(initial=0) < 2**31 else wide

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[int, ...]: ...
    def __getitem__(self, place: int | slice) -> int | tuple[int, ...]:
        picked = self._numbers[place].tolist()
        return tuple(picked) if isinstance(place, slice) else picked

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


class RoundState(NamedTuple):
    """Everything that a round left behind."""

    shared: Params
    """The shared model."""
    server: Any
    """The server's state: momentum, control variates, averaged optimizer states."""
    personal: dict[int, Params]
    """What each client of the cohort keeps; nothing where clients keep nothing."""


@dataclass(frozen=True)
class RoundReport:
    """One round: who took part, how it went, what it cost.

    `params` is the shared model after it: always in what `train` yields, and in a result's history where the models of
    all rounds together are small.
    """

    round: int
    loss: float
    clients: Sequence[int]
    costs: Costs
    total_costs: Costs
    seconds: float
    measurements: dict[str, float] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    abandoned: bool = False
    """Whether too few uploads came for the round to count."""
    validation: Scores | None = None
    test: Scores | None = None
    """Kept only when validation has just selected this round, or where there is no validation part."""
    private: bool = False
    """Whether the round was private: then it says nothing of its clients but what the noised mean tells."""
    time: float = 0.0
    """Seconds of the clock that the round took: of devices in a simulation, measured in a deployment; else 0."""
    energy: float = 0.0
    """Joules that the devices of all clients asked have used in it; 0 without devices."""
    total_time: float = 0.0
    """Seconds of the clock from the start of the run to the end of the round."""
    total_energy: float = 0.0
    stops: bool = False
    """Whether the run ends with this round since validation has not improved for `Evaluation(patience=...)`."""
    params: Params = field(default_factory=dict, repr=False, compare=False)
    state: RoundState | None = field(default=None, repr=False, compare=False)
    """The whole state after the round, where `states=True` asks for it."""

    @property
    def selects(self) -> bool:
        """Whether validation has selected this round. Without validation rows the last round is the one that counts."""
        return self.validation is not None and self.test is not None

    @property
    def scores(self) -> Scores | None:
        """The evaluation that guides the run: validation where there is one, else test."""
        return self.validation or self.test

    def _repr_html_(self) -> str:
        return html_of(self)


class RunHistory:
    """What follows from a run's rounds, for everything that has them."""

    history: Sequence[RoundReport]

    @property
    def selected(self) -> RoundReport | None:
        """The round whose test scores count: the last one that validation selected."""
        return next((report for report in reversed(self.history) if report.test is not None), None)

    @property
    def scores(self) -> Scores | None:
        """The test scores of the selected round."""
        return self.selected.test if self.selected else None

    @property
    def costs(self) -> Costs:
        """What all rounds cost together."""
        return self.history[-1].total_costs if self.history else Costs()

    @property
    def time(self) -> float:
        """Seconds of the clock that the run took: of devices, or measured in a deployment; 0 without a clock."""
        return self.history[-1].total_time if self.history else 0.0

    @property
    def energy(self) -> float:
        """Joules that the devices have used; 0 without devices."""
        return self.history[-1].total_energy if self.history else 0.0

    @property
    def seconds(self) -> float:
        """What all rounds took, those before an interruption too."""
        return sum(report.seconds for report in self.history)


def evaluations_since_best(history: Sequence[RoundReport]) -> int:
    """Evaluations since the last one that validation selected."""
    evaluated = [report for report in history if report.validation is not None]
    return next((count for count, report in enumerate(reversed(evaluated)) if report.selects), len(evaluated))


def unheard(history: Iterable[RoundReport]) -> list[int]:
    """Clients that were asked and never sent anything that counted."""
    reports = list(history)
    failed = {failure.client for report in reports for failure in report.failures}
    for report in reports:
        if failed and not report.abandoned:
            failed.difference_update(report.clients)
    return sorted(failed)


def to_json(report: RoundReport) -> str:
    """The whole report but the parameters; numbers keep every bit."""
    values = {name: value for name, value in vars(report).items() if name not in ("params", "state")}
    values["costs"], values["total_costs"] = asdict(report.costs), asdict(report.total_costs)
    values["clients"] = list(report.clients)
    values["failures"] = [list(failure) for failure in report.failures]
    for part in ("validation", "test"):
        values[part] = None if values[part] is None else _scores_to_plain(values[part])
    return json.dumps(values)


def from_json(text: str) -> RoundReport:
    """The inverse of `to_json`."""
    values: dict[str, Any] = json.loads(text)
    values["clients"] = Clients(values["clients"])
    values["costs"], values["total_costs"] = Costs(**values["costs"]), Costs(**values["total_costs"])
    values["failures"] = tuple(Failure(*failure) for failure in values["failures"])
    for part in ("validation", "test"):
        values[part] = None if values[part] is None else _scores_from_plain(values[part])
    return RoundReport(**values)


def _scores_to_plain(scores: Scores) -> dict[str, Any]:
    groups = {
        name: {
            "clients": users.clients.tolist(),
            "samples": users.samples.tolist(),
            "values": {metric: values.tolist() for metric, values in users.values.items()},
            "interpolated": users.interpolated,
            "lower": sorted(users.lower),
        }
        for name, users in scores.groups().items()
    }
    return {"part": scores.part, "metric": scores.metric, **groups}


def _scores_from_plain(plain: Mapping[str, Any]) -> Scores:
    groups = {
        name: UserScores(
            np.array(users["clients"], dtype=np.int64),
            np.array(users["samples"], dtype=np.int64),
            {metric: np.array(values, dtype=np.float64) for metric, values in users["values"].items()},
            users["interpolated"],
            frozenset(users["lower"]),
        )
        for name, users in plain.items()
        if name not in ("part", "metric")
    }
    return Scores(part=plain["part"], metric=plain["metric"], **groups)
