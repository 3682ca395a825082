"""Client names are never paths, and what a run writes about itself is a closed list without paths or samples."""

from __future__ import annotations

import csv
import json
import logging
import os
import re
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.data.files.archives import read_tar_gz
from fedtempo.errors import DataError
from tests.faults.test_durable import HEADS

HOSTILE = [
    "../../x",
    "a/b",
    "CON",
    ".",
    "",
    "x" * 300,
    "client",
    "CLIENT",
    "clіent",  # noqa: RUF001 - a Cyrillic letter
    "nul\0byte",
    "<script>alert(1)</script>",
    "~root",
]
CANARY = 12345.678


def settings(**more: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    rows = [(rng.standard_normal((8, 6)), rng.integers(0, 4, 8)) for _ in HOSTILE]
    rows[3][0][0] = CANARY
    data = ft.data.FederatedData.from_clients(rows, test=0.25, names=HOSTILE)
    defaults = {"rounds": 3, "cohort": 1.0, "batch_size": 4, "backend": "serial", "evaluation": ft.Evaluation(every=1)}
    return {"model": ft.models.mlp(6, [5], 4), "data": data, "algorithm": HEADS, **defaults, **more}


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_names_of_clients_choose_no_path(tmp_path: Path) -> None:
    above = tmp_path / "above"
    folder = above / "runs" / "one"
    result = ft.run(**settings(), out=folder)
    assert files(above) == {"runs", "runs/one", *(f"runs/one/{name}" for name in files(folder))}
    assert all("/" not in name for name in files(folder)), "no name became a folder"
    assert len(list(result.store.items())) == len(HOSTILE), "no two names became one client"
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "<script>alert(1)</script>" not in page


ROUND = {
    *("round", "loss", "clients", "failures", "costs", "total_costs", "measurements", "seconds", "validation", "test"),
    *("time", "total_time", "energy", "total_energy"),
}
SUMMARY = {
    *("algorithm", "data", "backend", "ran_as", "rounds", "selected_round", "scores", "costs", "never_heard"),
    *(
        "seconds",
        "time",
        "energy",
        "digest",
        "finished",
        "versions",
        "command",
        "metric",
        "task",
        "model_round",
        "notes",
        "stopped_early",
    ),
}


def longest_list(value: Any) -> int:
    if isinstance(value, dict):
        return max((longest_list(part) for part in value.values()), default=0)
    if isinstance(value, list):
        return max(len(value), *(longest_list(part) for part in value)) if value else 0
    return 0


def test_metrics_are_a_closed_list_without_samples_or_paths(tmp_path: Path) -> None:
    ft.run(**settings(faults=ft.Faults(drop=0.2)), out=tmp_path / "run")
    rounds = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert {key for line in rounds for key in line} == ROUND
    assert set(summary) == SUMMARY
    for line in rounds:
        assert longest_list({**line, "failures": []}) <= 16
    command = summary.pop("command")
    assert command is None or "\n" not in command
    for name in ("metrics.jsonl", "metrics.csv"):
        text = (tmp_path / "run" / name).read_text()
        assert str(CANARY) not in text
        assert str(tmp_path) not in text
        assert str(Path.home()) not in text
    assert str(tmp_path) not in json.dumps(summary)
    assert str(CANARY) not in json.dumps(summary)


@pytest.mark.slow("writes an archive of 100,001 members")
def test_an_archive_of_a_hundred_thousand_and_one_members(tmp_path: Path) -> None:
    path = tmp_path / "many.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for number in range(100_001):
            archive.addfile(tarfile.TarInfo(f"{number:06d}{os.urandom(8).hex()}"))
    before = files(tmp_path)
    with pytest.raises(DataError, match="at most 100000 members"):
        read_tar_gz(path, lambda name: True)
    assert files(tmp_path) == before


FORMULAS = ["=cmd|'/C calc'!A0", "@SUM(1)", "+1+1", "-2+3", "\t=1", "a\x1b[2Jb", "two\nlines", "＝1"]  # noqa: RUF001


def test_a_name_is_no_formula_in_a_table_and_no_order_to_a_terminal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(0)
    rows = [(rng.standard_normal((8, 6)), rng.integers(0, 4, 8)) for _ in FORMULAS]
    data = ft.data.FederatedData.from_clients(rows, test=0.25, names=FORMULAS)
    result = ft.run(**settings(data=data), trackers=["csv"], out=tmp_path / "run")
    result.save_frame(tmp_path / "scores.csv")
    for path in (*(tmp_path / "run").glob("*.csv"), tmp_path / "scores.csv"):
        with path.open(newline="", encoding="utf-8") as file:
            for cell in (cell for row in csv.reader(file) for cell in row):
                assert not re.match(r"\s*[=+@]|\s*-(?![\d.])|\s*-\d+\D*[+]", cell), (path, cell)
                assert cell.isprintable()
    with (tmp_path / "run" / "users.csv").open(newline="", encoding="utf-8") as file:
        names = [row["name"] for row in csv.DictReader(file)]
    assert names[:2] == ["'=cmd|'/C calc'!A0", "'@SUM(1)"]
    assert names[5:7] == ["a\\x1b[2Jb", "two\\nlines"]
    logging.getLogger("fedtempo").warning("client %s", "a\x1b[2J\nb")
    assert caplog.messages[-1] == "client a\\x1b[2J\\nb"
