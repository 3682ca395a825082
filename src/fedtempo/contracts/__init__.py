"""Contracts: the laws of every algorithm, backend, model, metric and loss. One call checks them for your own."""

from fedtempo.contracts.algorithms import (
    ContractError,
    check_algorithm,
    check_backend,
    distance,
    representative_algorithms,
    small_data,
)
from fedtempo.contracts.models import check_model
from fedtempo.contracts.scoring import check_loss, check_metric

__all__ = [
    "ContractError",
    "check_algorithm",
    "check_backend",
    "check_loss",
    "check_metric",
    "check_model",
    "distance",
    "representative_algorithms",
    "small_data",
]
