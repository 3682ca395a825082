"""A file of one's own as a data set by name: `csv` and `parquet`, in experiment files and commands too."""

from __future__ import annotations

from functools import partial

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


_own = partial(DataSet, page="yours", licence="yours", citation="yours", clients="the column that `client` names")
CSV = _own(name="csv", load=csv_table, about="a CSV file of yours")
PARQUET = _own(name="parquet", load=parquet_table, about="a Parquet file of yours (extra `frames`)")
