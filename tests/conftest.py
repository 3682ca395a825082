"""What all tests share: small problems, real data when they are there, slow tests on request."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from _pytest.doctest import DoctestModule

import fedtempo as ft
from fedtempo.training.log import LOGGER

torch.set_num_threads(1)
BACKENDS = ("serial", "vectorised")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the slow tests too")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow(why): takes long and rarely breaks; run with --slow")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Thousands of tests are made and none is dropped, so the garbage collector need not look at them, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Iterator[None]:
    """Examples in docstrings are those of the library: no test has one, and to look for them in all takes a while."""
    return [each for each in (yield) if not isinstance(each, DoctestModule)]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept, left_out = [], []
    _take_turns(items)
    for item in items:
        if _is_the_other_pair(item):
            item.add_marker(pytest.mark.slow("every backend and every kind of cohort runs every time, in another pair"))
        mark = item.get_closest_marker("slow")
        if mark is not None and not mark.args:
            raise pytest.UsageError(f"{item.nodeid}: a slow mark must say why, as in pytest.mark.slow('why').")
        (kept if mark is None or config.getoption("--slow") else left_out).append(item)
    # Not skipped: a third of all tests is slow, and to skip one takes as long as to run a small one.
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """A test that leaves the library silent lets later ones fail, those that read what it says. So it fails itself."""
    found = yield
    level = LOGGER.level
    LOGGER.setLevel(logging.NOTSET)
    assert level == logging.NOTSET, f"the test leaves the logger's level at {logging.getLevelName(level)}"
    return found


def _is_the_other_pair(item: pytest.Item) -> bool:
    """Of two backends and two kinds of cohort, everybody runs one by one and some run side by side every time."""
    spec = getattr(item, "callspec", None)
    if spec is None or not {"backend", "cohorts"} <= set(spec.params):
        return False
    kinds = {"everybody", "some"} & set(spec.id.split("-"))
    if len(kinds) != 1:  # by any other name, both would run side by side and none one by one
        raise pytest.UsageError(f"{item.nodeid}: the ids of cohorts must be everybody and some.")
    return (spec.params["backend"] == "serial") != ("everybody" in kinds)


def _take_turns(items: list[pytest.Item]) -> None:
    """Numbers and laws that run on both backends with other parameters too: every case runs every time on one."""
    functions: dict[str, dict[tuple[str, ...], list[pytest.Item]]] = {}
    for item in items:
        spec = getattr(item, "callspec", None)
        if spec is None or not {"numbers", "laws"} & set(item.path.parts) or "cohorts" in spec.params:
            continue
        if spec.params.get("backend") in BACKENDS:
            others = tuple(part for part in spec.id.split("-") if part not in BACKENDS)
            functions.setdefault(item.nodeid.partition("[")[0], {}).setdefault(others, []).append(item)
    for cases in functions.values():
        for number, both in enumerate(cases.values() if len(cases) > 1 else ()):
            for item in both:
                if item.callspec.params["backend"] != BACKENDS[number % 2]:  # type: ignore[attr-defined]
                    item.add_marker(pytest.mark.slow("it runs every time on the other backend"))


@pytest.fixture(scope="session")
def real_data() -> Path:
    folder = os.environ.get("FEDTEMPO_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("the real data sets are not here: set FEDTEMPO_DATA")
    return Path(folder)


@pytest.fixture(scope="session")
def decoded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache of real data for all tests and all their processes, so that each data set is decoded once."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "decoded"


@pytest.fixture(scope="session")
def digits() -> ft.data.FederatedData:
    """Twenty clients of unequal size, four of them new."""
    table = ft.data.load("digits")
    return table.split(ft.data.dirichlet(clients=20, alpha=0.5), new_clients=4, seed=1, min_samples=3)


@pytest.fixture
def clients() -> list[tuple[np.ndarray, np.ndarray]]:
    """Six clients of unequal size, six features, four classes."""
    rng = np.random.default_rng(3)
    return [(rng.standard_normal((n, 6)), rng.integers(0, 4, n)) for n in (7, 12, 5, 16, 9, 10)]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, and no data from outside."""
    monkeypatch.delenv("FEDTEMPO_DATA", raising=False)
    cache = tmp_path / "cache"
    monkeypatch.setenv("FEDTEMPO_CACHE", str(cache))
    return cache


@pytest.fixture
def tiny_load(tmp_path: Path, elsewhere: Path) -> Callable[..., ft.data.Table]:
    """Loads a data set from the files that the test made in its own folder."""
    return lambda name, **settings: ft.data.load(name, data_dir=tmp_path, verify=False, **settings)
