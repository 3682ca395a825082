"""The one-dimensional illustration of the decaying-K paper."""

from __future__ import annotations

import numpy as np

from fedtempo.data.files.published import PER_CLIENT, DataSet
from fedtempo.data.table import Table
from fedtempo.errors import is_count, require
from fedtempo.randomness import generator


def quadratic(clients: int = 1000, seed: int = 0) -> Table:
    """One number z per client, drawn from p(z) proportional to z^(-1/2) on [1, 3]; client z's loss is (z/2) x^2 - x.

    Column `x` holds z, shape (clients,); there is no target, so the model returns the loss itself (loss="direct").
    Drawn by inverting the distribution: z = (1 + u (sqrt(3) - 1))^2 with u uniform. The population's mean is
    (3 sqrt(3) - 1) / (3 (sqrt(3) - 1)), so the global minimiser is x* = 0.523373.

    >>> float(quadratic(clients=3).columns["x"].min()) >= 1
    True
    """
    require(is_count(clients), "clients", "an int >= 1", clients)
    share = generator(seed, "quadratic").random(clients)
    return Table("quadratic", {"x": (1 + share * (np.sqrt(3) - 1)) ** 2}, keys=np.arange(clients))


def _size(clients: int = 1000, **others: object) -> float:
    return float(clients) * PER_CLIENT


QUADRATIC = DataSet(
    name="quadratic",
    load=quadratic,
    page="https://arxiv.org/abs/2305.09628",
    licence="none needed: generated",
    citation="Mills, Hu, Min, Faster Federated Learning with Decaying Number of Local SGD Steps (2023)",
    clients="one number each",
    about="z on [1, 3] with density proportional to z^-1/2",
    size=_size,
)
