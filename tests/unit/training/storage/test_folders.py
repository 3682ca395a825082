"""Where a run may be stored: its folder takes nothing from the user, and is not made by mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.training.storage.database import DATABASE
from fedtempo.training.storage.folders import AT_THE_END, COUNT, LOCK


def stored(out: str | Path, **more: Any) -> ft.Result:
    rows = (np.eye(4, dtype=np.float32), np.array([0, 1, 0, 1]))
    data = ft.data.FederatedData.from_clients([rows, rows], validation=0.25, test=0.25)
    settings: dict[str, Any] = {
        "algorithm": ft.algorithms.fedsgd(lr=0.1),
        "rounds": 1,
        "backend": "serial",
        "progress": False,
    }
    return ft.run(model=ft.models.softmax_regression(4, 2), data=data, out=out, **settings, **more)


def test_a_finished_folder_holds_the_listed_files(tmp_path: Path) -> None:
    stored(tmp_path / "run")
    assert {path.name for path in (tmp_path / "run").iterdir()} - {DATABASE, COUNT, LOCK} == set(AT_THE_END)


@pytest.mark.parametrize("name", AT_THE_END)
def test_a_file_of_the_users_is_not_written_over(tmp_path: Path, name: str) -> None:
    """Data may lie beside the run, as `users.csv`; the end of the run would replace it."""
    (tmp_path / name).write_text("mine")
    with pytest.raises(ft.OutputError, match=f"without files that a run writes. Got .*, which holds {name}"):
        stored(tmp_path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "mine")]


def test_a_misspelt_folder_to_resume_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(ft.OutputError, match=r"must hold a run\. Got .*nowhere, which does not exist"):
        stored(tmp_path / "nowhere", resume=True)
    assert not list(tmp_path.iterdir())


def test_an_empty_name_is_not_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ft.ConfigError, match=r"out must be a path\. Got ''"):
        stored("")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("resume", [False, True])
def test_a_name_that_no_system_takes_is_one_line(tmp_path: Path, resume: bool) -> None:
    with pytest.raises(ft.OutputError, match=r"must be a folder that can be written\. Got .*: a zero byte in its name"):
        stored(f"{tmp_path}/a\0b", resume=resume)
