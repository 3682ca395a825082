"""Real files are found through FEDTEMPO_DATA."""

import os

import pytest

from fedtempo.data.files.folders import present
from fedtempo.data.load import DATASETS


@pytest.fixture
def real(decoded):
    """Loads a data set from the real files, or skips."""
    from fedtempo.data import load

    def loader(name, **settings):
        folder = os.environ.get("FEDTEMPO_DATA")
        if not folder:
            pytest.skip("FEDTEMPO_DATA is not set: no real files")
        if present(DATASETS[name], folder, decoded) is None:
            pytest.skip(f"{name} is not in FEDTEMPO_DATA ({DATASETS[name].page})")
        return load(name, data_dir=folder, cache_dir=decoded, **settings)

    return loader
