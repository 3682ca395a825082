"""Which nodes a run starts with: those whose claims fit together. A node whose claims do not costs only itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

from fedtempo.deploy.membership.census import Census

SHOWN = 5


class Agreement(NamedTuple):
    """What the nodes that are connected agree on."""

    clients: int
    """How many clients the run has; 0 as long as nobody says so, or as many nodes say something else."""
    nodes: dict[int, Census]
    """The nodes that agree, in the order they came."""
    objections: dict[int, str]
    """Why each of the other nodes is left out."""
    populations: Mapping[int, int]
    """How many nodes say each number of clients."""

    @property
    def here(self) -> set[int]:
        """The clients on the nodes that agree."""
        return {number for census in self.nodes.values() for number in census.numbers}

    @property
    def complete(self) -> bool:
        """Whether all clients are here. Their numbers are different and in range, so counting them is enough."""
        return 0 < self.clients == sum(len(census.numbers) for census in self.nodes.values())

    def missing(self) -> str:
        """What a run still waits for."""
        if not self.clients and len(self.populations) > 1:
            said = ", ".join(f"{n} ({nodes} node{'s' * (nodes > 1)})" for n, nodes in sorted(self.populations.items()))
            return f"; nodes must agree how many clients there are. Got {said}: say it with --clients"
        here = self.here
        absent = list(islice((number for number in range(self.clients) if number not in here), SHOWN))
        return f"; without {absent}" if absent else ""


def agree(counted: Mapping[int, Census], clients: int | None) -> Agreement:
    """The nodes whose claims fit together.

    The number of clients is given, or what more than half of the nodes say that say one. The form of the columns is
    that of most nodes. Of two nodes with one client, the first one counts.
    """
    populations = Counter(census.population for census in counted.values() if census.population)
    expected = clients or _majority(populations)
    forms = Counter(census.form for census in counted.values())
    form = forms.most_common(1)[0][0] if forms else ""
    agreeing: dict[int, Census] = {}
    objections: dict[int, str] = {}
    taken: set[int] = set()
    for node, census in counted.items():
        reason = _objection(census, expected, form, taken)
        if reason is None:
            agreeing[node] = census
            taken.update(census.numbers)
        else:
            objections[node] = reason
    return Agreement(expected, agreeing, objections, populations)


def is_complete(counted: Mapping[int, Census], clients: int | None) -> bool:
    """Whether a run can start with these nodes; asked after every answer, so numbers are counted before compared."""
    populations = Counter(census.population for census in counted.values() if census.population)
    expected = clients or _majority(populations)
    enough = 0 < expected <= sum(len(census.numbers) for census in counted.values())
    return enough and agree(counted, clients).complete


def _majority(populations: Counter[int]) -> int:
    (most, nodes), *_ = populations.most_common(1) or [(0, 0)]
    return most if 2 * nodes > populations.total() else 0


def _objection(census: Census, expected: int, form: str, taken: set[int]) -> str | None:
    highest, both = max(census.numbers), taken.intersection(census.numbers)
    if expected and census.population not in (None, expected):
        return f"there must be {expected} clients in the run. It says {census.population}."
    if expected and highest >= expected:
        return f"client {highest} must be below {expected}, the number of clients."
    if census.form != form:
        return f"its columns must be those of most nodes, {form}. Got {census.form}."
    return f"client {min(both)} is on another node already." if both else None
