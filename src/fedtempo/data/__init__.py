"""Data: load a table, split it among clients, draw batches."""

from fedtempo.data import augment
from fedtempo.data.adapters import from_flower_partitioner, from_hugging_face, from_torch
from fedtempo.data.batches import Batching
from fedtempo.data.benchmark_folders import from_leaf, from_pfllib
from fedtempo.data.benchmark_splits import extended_dirichlet, hsu_dirichlet, niid_bench, pachinko, pfllib
from fedtempo.data.feature_shift import feature_shift
from fedtempo.data.federated import FederatedData
from fedtempo.data.frames import from_csv, from_frame, from_parquet
from fedtempo.data.lazy import LazyColumn, from_images, pad_sequences
from fedtempo.data.load import DATASETS, load
from fedtempo.data.preparation import Feature, Preparation
from fedtempo.data.rotation import rotated
from fedtempo.data.saved import load_division, save_division
from fedtempo.data.splits import (
    SPLITS,
    by_index,
    by_owner,
    classes_per_client,
    dirichlet,
    iid,
    louvain,
    quantity_skew,
    shards,
)
from fedtempo.data.summary import describe, picture
from fedtempo.data.table import Split, Table, natural

__all__ = [
    "DATASETS",
    "SPLITS",
    "Batching",
    "Feature",
    "FederatedData",
    "LazyColumn",
    "Preparation",
    "Split",
    "Table",
    "augment",
    "by_index",
    "by_owner",
    "classes_per_client",
    "describe",
    "dirichlet",
    "extended_dirichlet",
    "feature_shift",
    "from_csv",
    "from_flower_partitioner",
    "from_frame",
    "from_hugging_face",
    "from_images",
    "from_leaf",
    "from_parquet",
    "from_pfllib",
    "from_torch",
    "hsu_dirichlet",
    "iid",
    "load",
    "load_division",
    "louvain",
    "natural",
    "niid_bench",
    "pachinko",
    "pad_sequences",
    "pfllib",
    "picture",
    "quantity_skew",
    "rotated",
    "save_division",
    "shards",
]
