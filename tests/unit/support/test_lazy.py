"""A package's public names are loaded when the first of them is used, and not with one of its modules."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

PACKAGE = {
    "__init__.py": "from fedtempo.support.lazy import names_of\n"
    "__getattr__, __dir__ = names_of('lazy_one.api', 'own')\n",
    "api.py": "from lazy_one.heavy import weight\n__all__ = ['weight']\n",
    "heavy.py": "weight = 3\nhidden = 4\n",
    "light.py": "weight = 0\n",
}


def test_names_are_loaded_when_the_first_of_them_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "lazy_one"
    folder.mkdir()
    for name, text in PACKAGE.items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    import lazy_one.light  # type: ignore[import-not-found]

    assert "lazy_one.heavy" not in sys.modules
    assert not hasattr(lazy_one, "_anything") and "lazy_one.heavy" not in sys.modules
    assert lazy_one.weight == 3 and lazy_one.__all__ == ["weight"]
    assert dir(lazy_one) == ["own", "weight"]
    with pytest.raises(AttributeError, match="module 'lazy_one' has no attribute 'hidden'"):
        _ = lazy_one.hidden
    for name in [name for name in sys.modules if name.partition(".")[0] == "lazy_one"]:
        del sys.modules[name]
