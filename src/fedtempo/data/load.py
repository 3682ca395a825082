"""Loading a data set by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fedtempo.data.files.folders import locate
from fedtempo.data.files.registry import CATALOGUE
from fedtempo.data.sets.cifar10 import cifar10
from fedtempo.data.sets.digits import digits
from fedtempo.data.sets.emnist import emnist
from fedtempo.data.sets.femnist import femnist
from fedtempo.data.sets.mnist import fashion_mnist, mnist
from fedtempo.data.sets.omniglot import omniglot
from fedtempo.data.sets.planetoid import citeseer, cora, pubmed
from fedtempo.data.sets.quadratic import quadratic
from fedtempo.data.sets.shakespeare import shakespeare, tinyshakespeare
from fedtempo.data.sets.sst2 import sst2
from fedtempo.data.sets.stackoverflow import stackoverflow
from fedtempo.data.sets.synthetic import synthetic
from fedtempo.data.table import Table
from fedtempo.errors import ConfigError, unknown

DATASETS: dict[str, Callable[..., Table]] = {
    "digits": digits,
    "mnist": mnist,
    "fashion_mnist": fashion_mnist,
    "emnist": emnist,
    "omniglot": omniglot,
    "cifar10": cifar10,
    "femnist": femnist,
    "shakespeare": shakespeare,
    "tinyshakespeare": tinyshakespeare,
    "stackoverflow": stackoverflow,
    "sst2": sst2,
    "pubmed": pubmed,
    "cora": cora,
    "citeseer": citeseer,
    "synthetic": synthetic,
    "quadratic": quadratic,
}


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
    loader = DATASETS[name]
    _check_settings(name, loader, settings)
    entry = CATALOGUE[name]
    table = loader(locate(name, data_dir, cache_dir, verify), **settings) if entry.ways else loader(**settings)
    return replace(table, about={"licence": entry.licence, "citation": entry.citation, **table.about})


def _check_settings(name: str, loader: Callable[..., Table], settings: dict[str, object]) -> None:
    known = [p for p in inspect.signature(loader).parameters if p != "sources"]
    for setting in settings:
        if setting not in known:
            takes = f"takes {', '.join(known)}" if known else "takes no settings"
            raise ConfigError(f"data set {name!r} has no setting {setting!r}; it {takes}.")
