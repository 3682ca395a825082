"""What `fedtempo deploy` shows of a run that is over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedtempo.cli.deploy import _show


def test_a_score_that_is_undefined_is_said_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = {"existing_after": {"auroc": {"mean": None}, "accuracy": {"mean": 0.5}}}
    summary = {"scores": scores, "rounds": 2, "digest": "0123456789abcdef0"}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    _show(tmp_path, as_json=False)
    assert capsys.readouterr().out.splitlines()[0] == "existing after: auroc undefined, accuracy 0.5000"
    _show(tmp_path, as_json=True)
    assert json.loads(capsys.readouterr().out) == summary
