"""What a page reads of a run folder besides its database: somebody else may have written it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fedtempo as ft
from fedtempo.report.watching import Watched


@pytest.fixture(scope="module")
def folder(digits: ft.data.FederatedData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("stored") / "run"
    algorithm, model = ft.algorithms.fedavg(lr=0.1, steps=1), ft.models.softmax_regression(64, 10)
    ft.run(model=model, data=digits, algorithm=algorithm, rounds=1, cohort=2, evaluation=None, out=out)
    return out


DAMAGED: dict[str, Any] = {
    "finished": ["finished must be text", 1e308, True, {}],
    "digest": ["digest must be text", 5, []],
    "command": ["command must be text", ["rm"]],
    "versions": ["versions must be an object of texts", "x", {"torch": 2}],
    "notes": ["notes must be a list of texts", "x", [None]],
    "privacy": ["privacy must be an object", "epsilon 0.1"],
}


@pytest.mark.parametrize("field", DAMAGED)
def test_a_summary_of_another_form_is_damage(field: str, folder: Path) -> None:
    message, *values = DAMAGED[field]
    whole = (folder / "summary.json").read_text()
    try:
        for value in values:
            (folder / "summary.json").write_text(json.dumps({**json.loads(whole), field: value}))
            with pytest.raises(ft.StoreError, match=message):
                ft.Run.of(folder)
    finally:
        (folder / "summary.json").write_text(whole)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 50_000, "", "null", "\0", '{"finished": "\\ud800"}'])
def test_a_summary_that_is_no_object_is_damage(text: str, folder: Path) -> None:
    whole = (folder / "summary.json").read_text()
    try:
        (folder / "summary.json").write_text(text)
        with pytest.raises(ft.StoreError, match="it must be a JSON object"):
            Watched(folder)
    finally:
        (folder / "summary.json").write_text(whole)


def test_bytes_that_are_no_text_are_shown_as_such(folder: Path) -> None:
    (folder / "experiment.toml").write_bytes(b"rounds = 1 # \xff\xfe")
    try:
        assert "\ufffd" in str(ft.Run.of(folder).file)
    finally:
        (folder / "experiment.toml").unlink()
