"""The data sets by name, and loading one."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path

from fedtempo.data.files.folders import locate
from fedtempo.data.files.published import DataSet
from fedtempo.data.sets.cifar10 import CIFAR10
from fedtempo.data.sets.cifar100 import CIFAR100
from fedtempo.data.sets.digits import DIGITS
from fedtempo.data.sets.emnist import EMNIST
from fedtempo.data.sets.femnist import FEMNIST
from fedtempo.data.sets.mnist import FASHION_MNIST, MNIST
from fedtempo.data.sets.omniglot import OMNIGLOT
from fedtempo.data.sets.own_files import CSV, LEAF, PARQUET, PFLLIB
from fedtempo.data.sets.planetoid import CITESEER, CORA, PUBMED
from fedtempo.data.sets.quadratic import QUADRATIC
from fedtempo.data.sets.sentiment140 import SENTIMENT140
from fedtempo.data.sets.shakespeare import SHAKESPEARE, TINYSHAKESPEARE
from fedtempo.data.sets.sst2 import SST2
from fedtempo.data.sets.stackoverflow import STACKOVERFLOW
from fedtempo.data.sets.synthetic import SYNTHETIC
from fedtempo.data.table import Table
from fedtempo.errors import ConfigError, is_count, unknown
from fedtempo.support.room import require_room

DATASETS: dict[str, DataSet] = {
    one.name: one
    for one in (
        DIGITS,
        MNIST,
        FASHION_MNIST,
        EMNIST,
        OMNIGLOT,
        CIFAR10,
        CIFAR100,
        FEMNIST,
        SHAKESPEARE,
        TINYSHAKESPEARE,
        STACKOVERFLOW,
        SST2,
        SENTIMENT140,
        PUBMED,
        CORA,
        CITESEER,
        SYNTHETIC,
        QUADRATIC,
        CSV,
        PARQUET,
        PFLLIB,
        LEAF,
    )
}
"""Every data set by name. A new one is a file in `data/sets` that ends in its `DataSet`, and a line here."""


def load(
    name: str,
    data_dir: str | Path | None = None,
    cache_dir: str | Path | None = None,
    verify: bool = True,
    **settings: object,
) -> Table:
    """The data set of this name, ready to be split.

    Files are looked for in `data_dir`, else in the folder FEDTEMPO_DATA names, else among the downloads of
    `fedtempo data get`. Files that are not byte for byte the published ones are refused; `verify=False` reads your
    own files of the same layout. The first load decodes into `cache_dir` (else FEDTEMPO_CACHE, else the platform's
    cache folder); later ones map those arrays into memory. `settings` are the loader's own.

    >>> len(load("digits"))
    1797
    """
    if not isinstance(name, str) or name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    chosen = DATASETS[name]
    _check_settings(chosen, settings)
    sources = (locate(chosen, data_dir, cache_dir, verify),) if chosen.ways else ()
    if chosen.size is not None and is_count(settings.get("clients", 1)):
        require_room(chosen.size(**settings), f"data {name!r}")
    table = chosen.load(*sources, **settings)
    return replace(table, about={"licence": chosen.licence, "citation": chosen.citation, **table.about})


def _check_settings(chosen: DataSet, settings: dict[str, object]) -> None:
    parameters = inspect.signature(chosen.load).parameters
    known = [p for p in parameters if p != "sources"]
    needed = [p for p in known if parameters[p].default is inspect.Parameter.empty and p not in settings]
    if needed:
        raise ConfigError(f"data set {chosen.name!r} needs {', '.join(needed)}.")
    for setting in settings:
        if setting not in known:
            takes = f"takes {', '.join(known)}" if known else "takes no settings"
            raise ConfigError(f"data set {chosen.name!r} has no setting {setting!r}; it {takes}.")
