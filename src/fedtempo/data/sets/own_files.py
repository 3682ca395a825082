"""A file of one's own as a data set by name: `csv` and `parquet`, in experiment files and commands too."""

from __future__ import annotations

from functools import partial

from fedtempo.data.benchmark_folders import from_leaf, from_pfllib
from fedtempo.data.files.published import DataSet
from fedtempo.data.frames import TargetKind, from_csv, from_parquet
from fedtempo.data.preparation import Missing, Strings
from fedtempo.data.table import Table


def csv_table(
    path: str,
    client: str,
    target: str,
    features: list[str] | None = None,
    part: str | None = None,
    strings: Strings = "refuse",
    missing: Missing = "refuse",
    target_kind: TargetKind | None = None,
    standardise: bool = False,
    separator: str = ",",
    decimal: str = ".",
) -> Table:
    """A CSV file with a header line; the settings are those of `from_csv`."""
    return from_csv(**locals())  # every parameter, passed on by name


def parquet_table(
    path: str,
    client: str,
    target: str,
    features: list[str] | None = None,
    part: str | None = None,
    strings: Strings = "refuse",
    missing: Missing = "refuse",
    target_kind: TargetKind | None = None,
    standardise: bool = False,
) -> Table:
    """A Parquet file; the settings are those of `from_frame`."""
    return from_parquet(**locals())  # every parameter, passed on by name


def pfllib_table(path: str) -> Table:
    """A folder that PFLlib's `generate_X.py` wrote."""
    return from_pfllib(path)


def leaf_table(path: str) -> Table:
    """A folder of LEAF's JSON files."""
    return from_leaf(path)


_own = partial(DataSet, page="yours", licence="yours", citation="yours", clients="the column that `client` names")
CSV = _own(name="csv", load=csv_table, about="a CSV file of yours")
PFLLIB = _own(name="pfllib", load=pfllib_table, about="a folder that PFLlib wrote")
LEAF = _own(name="leaf", load=leaf_table, about="a folder of LEAF's JSON files, of numbers")
PARQUET = _own(name="parquet", load=parquet_table, about="a Parquet file of yours (extra `frames`)")
