"""Real files are found through FEDTEMPO_DATA; everything else is made by the tests in the official layouts."""

import os
from pathlib import Path

import pytest

from fedtempo.data.files.folders import present
from fedtempo.data.load import DATASETS


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory):
    """One cache for all tests on real files, so that each is decoded once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def real(shared_cache):
    """Loads a data set from the real files, or skips."""
    from fedtempo.data import load

    def loader(name, **settings):
        folder = os.environ.get("FEDTEMPO_DATA")
        if not folder:
            pytest.skip("FEDTEMPO_DATA is not set: no real files")
        if present(DATASETS[name], folder, shared_cache) is None:
            pytest.skip(f"{name} is not in FEDTEMPO_DATA ({DATASETS[name].page})")
        return load(name, data_dir=folder, cache_dir=shared_cache, **settings)

    return loader


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A cache of the test's own and no data from outside; fails if anything else below the folder changes."""
    monkeypatch.delenv("FEDTEMPO_DATA", raising=False)
    cache = tmp_path / "cache"
    monkeypatch.setenv("FEDTEMPO_CACHE", str(cache))
    return cache


@pytest.fixture
def tiny_load(tmp_path, elsewhere):
    """Loads a data set from the files that the test made in its own folder."""
    from fedtempo.data import load

    return lambda name, **settings: load(name, data_dir=tmp_path, verify=False, **settings)


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
