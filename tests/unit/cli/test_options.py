"""What commands share: a run goes into a folder where it overwrites nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedtempo as ft
from fedtempo.cli.options import new_folder


@pytest.mark.parametrize("name", ["experiment.toml", "report.html", "summary.json", "model-last.safetensors"])
def test_a_folder_with_files_that_a_run_writes_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    new_folder(tmp_path)
    (tmp_path / name).write_text("mine")
    with pytest.raises(ft.OutputError, match=f"without files that a run writes. Got .*, which holds {name}"):
        new_folder(tmp_path)
