"""Data: load a table, split it among clients, draw batches."""

from fedtempo.data.batches import Batching
from fedtempo.data.federated import FederatedData
from fedtempo.data.load import DATASETS, load
from fedtempo.data.splits import (
    SPLITS,
    Split,
    by_owner,
    classes_per_client,
    dirichlet,
    iid,
    louvain,
    natural,
    quantity_skew,
    shards,
)
from fedtempo.data.table import Table

__all__ = [
    "DATASETS",
    "SPLITS",
    "Batching",
    "FederatedData",
    "Split",
    "Table",
    "by_owner",
    "classes_per_client",
    "dirichlet",
    "iid",
    "load",
    "louvain",
    "natural",
    "quantity_skew",
    "shards",
]
