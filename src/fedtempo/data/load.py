"""Loading a data set by name."""

from __future__ import annotations

from collections.abc import Callable

from fedtempo.data.digits import digits
from fedtempo.data.table import Table
from fedtempo.errors import ConfigError, unknown

DATASETS: dict[str, Callable[..., Table]] = {"digits": digits}


def load(name: str, **settings: object) -> Table:
    """The data set of this name, ready to be split.

    >>> len(load("digits"))
    1797
    """
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    try:
        return DATASETS[name](**settings)
    except TypeError as error:
        raise ConfigError(f"data set {name!r} does not take these settings: {error}.") from None
