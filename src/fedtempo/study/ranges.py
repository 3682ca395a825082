"""What is tuned for each contestant: ranges of its own rates by default, the user's ranges, and the points tried."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedtempo.errors import ConfigError
from fedtempo.randomness import generator
from fedtempo.tuning.space import Dimension, Range

RATES = {
    "lr": (0.01, 3.0),
    "head_lr": (0.003, 1.0),
    "server_lr": (0.01, 3.0),
    "personal_lr": (0.01, 1.0),
}
"""The rates that are tuned by default where an algorithm asks for them, with their logarithmic ranges."""
OF_ALGORITHMS: Mapping[str, Mapping[str, tuple[float, float]]] = {
    # One step a round: it may be as long as all local steps of the others together.
    "fedsgd": {"lr": (0.03, 10.0)},
    # Adaptive servers move every weight by about the server's rate, whatever the gradient.
    **{name: {"lr": (0.01, 3.0), "server_lr": (0.001, 0.3)} for name in ("fedadam", "fedyogi", "fedadagrad")},
    # AdamW inside, and steps of one length.
    **{name: {"lr": (0.0001, 0.1)} for name in ("diloco", "fedadamw")},
    "fedmuon": {"lr": (0.0003, 0.3)},
    "pfedme": {"lr": (0.003, 1.0), "personal_lr": (0.01, 1.0)},
}
"""Ranges of algorithms for which those of `RATES` do not fit. Their rates are tuned even if they have a default."""
RangeKey = tuple[str | None, str]
"""Whose range it is, None for all contestants, and its field."""
ADAPTIVE = ("adam", "adamw", "adagrad", "rmsprop")
ADAPTIVE_RATES = (0.0001, 0.1)


def default_ranges(name: str, build: Callable[..., object], given: Iterable[str] = ()) -> dict[str, Dimension]:
    """The rates of an algorithm that are tuned when nobody says otherwise, by parameter.

    These are its parameters of the names in `RATES` that have no default. `given` ones are fixed.

    >>> from fedtempo.algorithms import fedavg
    >>> default_ranges("fedavg", fedavg)["lr"].range
    Range(low=0.01, high=3.0, log=True, integer=False)
    """
    parameters = inspect.signature(build).parameters
    special = OF_ALGORITHMS.get(name, {})
    wanted = {
        rate: special.get(rate, ends)
        for rate, ends in RATES.items()
        if rate in special or (rate in parameters and parameters[rate].default is inspect.Parameter.empty)
    }
    return {rate: log_range(rate, *ends) for rate, ends in wanted.items() if rate not in set(given)}


def log_range(name: str, low: float, high: float) -> Dimension:
    """A range that is even on a logarithmic scale."""
    return Dimension(name, range=Range(low, high, log=True, integer=False))


def spread_points(dimensions: Sequence[Dimension], trials: int, seed: int) -> list[dict[str, object]]:
    """At most `trials` points, spread evenly over every dimension (a Latin hypercube).

    Each range is cut into `trials` equal cells, and the middle of each cell is tried once. One dimension alone makes a
    plain grid. Choices are dealt to the cells in order. Points that fall together are tried once.

    >>> [point["lr"] for point in spread_points([log_range("lr", 0.01, 1.0)], 4, seed=0)]
    [0.01778, 0.05623, 0.1778, 0.5623]
    """
    cells = np.arange(trials)
    orders = [
        cells if place == 0 else generator(seed, "trials", dimension.name).permutation(trials)
        for place, dimension in enumerate(dimensions)
    ]
    points = [
        {
            dimension.name: _value(dimension, int(order[trial]), trials)
            for dimension, order in zip(dimensions, orders, strict=True)
        }
        for trial in range(trials)
    ]
    unlike: list[dict[str, object]] = []
    for point in points:
        if point not in unlike:
            unlike.append(point)
    return unlike


def _value(dimension: Dimension, cell: int, cells: int) -> object:
    """The middle of a cell of the range, to four digits so that it can be read and written down."""
    share, found = (cell + 0.5) / cells, dimension.range
    if found is None:
        return dimension.choices[int(share * len(dimension.choices))]
    value = found.low * (found.high / found.low) ** share if found.log else found.low + share * (found.high - found.low)
    return round(value) if found.integer else float(f"{value:.4g}")


def at_an_end(dimension: Dimension, value: object, points: Sequence[Mapping[str, object]]) -> bool:
    """Whether a chosen value is the smallest or the largest that was tried: the best may lie outside.

    It is asked of ranges, and of lists of rates. Of other lists the user has said what there is.
    """
    tried = _numbers(dimension.name, points) if _can_be_wider(dimension) else []
    return len(tried) > 2 and value in (tried[0], tried[-1])


def _numbers(name: str, points: Sequence[Mapping[str, Any]]) -> list[float]:
    return sorted({point[name] for point in points})


def _can_be_wider(dimension: Dimension) -> bool:
    rates = all(field.removesuffix(".value").endswith("lr") for field in dimension.fields)
    return dimension.range is not None or (rates and all(isinstance(one, float) for one in dimension.choices))


def beyond(dimension: Dimension, value: object, points: Sequence[Mapping[str, object]]) -> float | None:
    """The next value outside of what was tried, as far from the end as its neighbour is; None where it is inside.

    >>> rates = log_range("lr", 0.01, 1.0)
    >>> beyond(rates, 1.0, [{"lr": 0.01}, {"lr": 0.1}, {"lr": 1.0}])
    10.0
    """
    if not at_an_end(dimension, value, points):
        return None
    tried = _numbers(dimension.name, points)
    end, neighbour = tried[-2:][::-1] if value == tried[-1] else tried[:2]
    even = dimension.range is not None and not dimension.range.log
    found = 2 * end - neighbour if even else end * end / neighbour
    if dimension.range is not None and dimension.range.integer:
        return round(found) if round(found) != end else None
    return float(f"{found:.4g}")


def split_ranges(ranges: Mapping[str, Dimension]) -> dict[RangeKey, Dimension]:
    """Ranges by contestant (None for all) and field: `feddecay/algorithm.lr` is for one, `algorithm.lr` for all."""
    found: dict[RangeKey, Dimension] = {}
    for name, dimension in ranges.items():
        whose, slash, field = name.rpartition("/")
        if not field or (slash and not whose):
            raise ConfigError(f"a range must be named FIELD or CONTESTANT/FIELD. Got {name!r}.")
        found[whose or None, field] = Dimension(field, dimension.choices, dimension.range)
    return found
