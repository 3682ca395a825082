"""Contracts: what every algorithm, backend, metric and loss must keep. Run them on your own in one line."""

from fedtempo.contracts.algorithms import (
    ContractError,
    check_algorithm,
    check_backend,
    distance,
    representative_algorithms,
    small_data,
)
from fedtempo.contracts.scoring import check_loss, check_metric

__all__ = [
    "ContractError",
    "check_algorithm",
    "check_backend",
    "check_loss",
    "check_metric",
    "distance",
    "representative_algorithms",
    "small_data",
]
