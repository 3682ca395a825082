"""What is not installed is said in one line that names who needs it and the extra."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.data.communities import communities
from fedtempo.data.files.download import fetch
from fedtempo.data.files.published import File
from fedtempo.data.sets.omniglot import _pixels
from fedtempo.data.sets.sst2 import uncased_tokens
from fedtempo.support.extras import install, library

NEEDS: dict[str, tuple[str, Callable[[], object]]] = {
    "requests": ("data", lambda: fetch(File("a", ("0" * 64,), 1), Path("/tmp/never"), "http://127.0.0.1:9/a")),
    "PIL": ("data", lambda: _pixels(b"", "a.png")),
    "networkx": ("graph", lambda: communities(np.array([[0, 1]]), 2, None, 0)),
    "tokenizers": ("text", lambda: uncased_tokens(["a"], ["[PAD]"], 3)),
    "transformers": ("text", lambda: ft.models.bert_tiny("anything")),
}


@pytest.mark.parametrize("name", NEEDS)
def test_a_missing_library_is_one_line(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)  # what Python does where a library is not installed
    extra, needs = NEEDS[name]
    with pytest.raises(ft.FedTempoError, match=rf"needs {name}: {re.escape(install(extra))}\.$") as error:
        needs()
    assert "\n" not in str(error.value)


def test_a_library_that_lacks_something_itself_says_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_library.py").write_text("import not_there_at_all")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ft.ConfigError, match=r"clone\. Got No module named 'not_there_at_all'\.$"):
        library("broken_library", "tune", "tune")


def test_all_holds_every_extra_but_the_developers() -> None:
    path = Path(__file__).resolve().parents[3] / "pyproject.toml"
    extras = tomllib.loads(path.read_text())["project"]["optional-dependencies"]
    named = extras["all"][0].partition("[")[2].rstrip("]").split(",")
    assert sorted(named) == sorted(set(extras) - {"all", "dev", "docs"})
