"""Which kinds of processor a stored run was on, and what its parts were up to rounding when it began.

Another kind computes other last bits. So a run that goes on there ends with another digest, and parts that are computed
before training, such as first weights, have another hash: there they are compared up to rounding.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from fedtempo.errors import OutputError, StoreError
from fedtempo.support.identity import equal_but_for_rounding
from fedtempo.support.kind import difference
from fedtempo.training.round_report import require_form
from fedtempo.training.storage.seals import MALFORMED


class Here(NamedTuple):
    """The processor that a run is on now."""

    kind: Mapping[str, str]
    rough: Callable[[], Mapping[str, str]]
    """The parts that rounding may change, up to rounding, by the names of their fields in the identity."""


class Kinds(NamedTuple):
    """The kinds of a run, each with the number of rounds that were done before it."""

    since: tuple[tuple[int, Mapping[str, str]], ...] = ()
    rough: Mapping[str, str] = {}

    @classmethod
    def stored(cls, text: str) -> Kinds:
        """The record of a folder; one of an older release has none."""
        if not text:
            return cls()
        try:
            record = json.loads(text)
            since = tuple((int(done), _texts(kind)) for done, kind in record["since"])
            return cls(since, _texts(record["rough"]))
        except MALFORMED:
            raise StoreError("the stored description of the run is damaged.") from None

    def to_text(self) -> str:
        """What `stored` reads."""
        return json.dumps(self._asdict())

    @property
    def newest(self) -> Mapping[str, str]:
        """The kind that the newest rounds were computed on; empty where it was not recorded."""
        return self.since[-1][1] if self.since else {}

    @property
    def first(self) -> Mapping[str, str]:
        """The kind that the run began on; empty where it was not recorded."""
        return self.since[0][1] if self.since else {}

    def then(self, kind: Mapping[str, str], done: int) -> Kinds:
        """The record of the run that goes on here after so many rounds."""
        before = tuple(one for one in self.since if one[0] < done) or ((0, {}),) if done else ()
        return self._replace(since=before if before and before[-1][1] == kind else (*before, (done, kind)))

    def allow(self, field: str, given: Mapping[str, str]) -> bool:
        """Whether rounding alone can have made this field of the identity another one."""
        return field in self.rough and field in given and equal_but_for_rounding(self.rough[field], given[field])

    def notes(self) -> list[str]:
        """A line for every move to another kind."""
        pairs = zip(self.since, self.since[1:], strict=False)
        return [move(before, kind, done) for (_, before), (done, kind) in pairs]


def move(before: Mapping[str, str], now: Mapping[str, str], done: int) -> str:
    """What a run that moved from one kind to another has to say, in one line."""
    return (
        f"processor: another kind since round {done + 1}, so the bits are not those of an uninterrupted run "
        f"({difference(before, now)})"
    )


def require_kind(before: Mapping[str, str], now: Mapping[str, str], same_kind: bool, private: bool) -> None:
    """Refuse to go on on another kind of processor where the run needs the bits of the first.

    A private round that is repeated has the same noise only where the uploads have the same bits. Two noises on one
    round would release more than it is charged for.
    """
    if not same_kind and not private:
        return
    why = " for a private run, whose noise is drawn from the bits of the uploads" if private else ""
    raise OutputError(
        f"the kind of processor must be that of the stored run{why}. Got another: {difference(before, now)}."
    )


def _texts(values: object) -> dict[str, str]:
    require_form(isinstance(values, dict), "kinds")
    assert isinstance(values, dict)
    require_form(all(isinstance(text, str) for pair in values.items() for text in pair), "kinds")
    return values
