"""One round, as the caller sees it and as it is stored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, get_args, overload

import numpy as np

from fedtempo.data.parts import Part
from fedtempo.errors import is_int
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
    def number(self) -> int:
        """The round as tables, files, trackers and pages count it: from 1. `round`, like `now.round`, counts from 0."""
        return self.round + 1

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
    """The inverse of `to_json`. Text of another form raises: what reads a report may rely on its types."""
    values: dict[str, Any] = json.loads(text)
    for name, value in values.items():
        known = isinstance(value, bool) if name in _TRUTHS else name not in _NUMBERS or is_real(value)
        require_form(known, name)
    measured = values.get("measurements", {})
    require_form(isinstance(measured, dict) and all(map(is_real, measured.values())), "measurements")
    values["clients"] = Clients(_array(values["clients"], np.int64).tolist())
    values["costs"], values["total_costs"] = costs_of(values["costs"]), costs_of(values["total_costs"])
    values["failures"] = tuple(Failure(*failure) for failure in values["failures"])
    require_form(all(is_int(each.client) and isinstance(each.reason, str) for each in values["failures"]), "failures")
    for part in ("validation", "test"):
        values[part] = None if values[part] is None else _scores_from_plain(values[part])
    return RoundReport(**values)


_NUMBERS = frozenset({"round", "loss", "seconds", "time", "energy", "total_time", "total_energy"})
_TRUTHS = frozenset({"abandoned", "private", "stops"})


def require_form(holds: bool, name: str) -> None:
    """Raise if a stored value has another form than ours."""
    if not holds:
        raise ValueError(f"{name} has another form")


def is_real(value: object) -> bool:
    """Whether a stored value is a number that fits into 64 bits; infinity and NaN are such numbers."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, float) or (whole and -(2**63) < value < 2**63)  # type: ignore[operator]


def _array(values: object, kind: type[np.generic], length: int | None = None) -> np.ndarray:
    """A stored list of numbers; numpy itself raises for most of what is none."""
    array = np.array(values, dtype=kind)
    require_form(array.ndim == 1 and length in (None, len(array)), "a list of numbers")
    return array


def costs_of(plain: Mapping[str, int]) -> Costs:
    """Stored costs."""
    require_form(all(map(is_real, plain.values())), "costs")
    return Costs(**plain)


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
    groups = {name: _users_of(users) for name, users in plain.items() if name not in ("part", "metric")}
    scores = Scores(part=plain["part"], metric=plain["metric"], **groups)
    require_form(scores.part in get_args(Part), "part")
    require_form(all(scores.metric in users.values for users in groups.values()), "metric")
    return scores


def _users_of(plain: Mapping[str, Any]) -> UserScores:
    clients, lower = _array(plain["clients"], np.int64), plain["lower"]
    form = isinstance(plain["interpolated"], bool) and all(isinstance(name, str) for name in lower)
    require_form(form, "scores")
    values = {metric: _array(each, np.float64, len(clients)) for metric, each in plain["values"].items()}
    samples = _array(plain["samples"], np.int64, len(clients))
    return UserScores(clients, samples, values, plain["interpolated"], frozenset(lower))
