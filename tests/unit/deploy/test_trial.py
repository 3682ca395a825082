"""A trial compares digests where two runs can have the same one. The real programs run in `tests/e2e/deploy`."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedtempo.config import parse
from fedtempo.deploy import trial
from tests.unit.deploy.test_flower_programs import FILE


@pytest.mark.parametrize("private", [True, False])
def test_a_private_trial_has_no_digest_to_compare(
    private: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launch(out: Path, *others: object) -> SimpleNamespace:
        def run(tell: object) -> None:
            out.mkdir(parents=True)
            (out / "summary.json").write_text(json.dumps({"digest": "d", "seconds": 1.0}))

        return SimpleNamespace(start=lambda: None, run=run)

    monkeypatch.setattr(trial, "ServerLaunch", launch)
    monkeypatch.setattr(trial, "run", lambda **settings: SimpleNamespace(digest=lambda: "d"))
    for name in ("make_keys", "prepare_server", "start_node"):
        monkeypatch.setattr(trial, name, lambda *arguments: None)
    mean = {"aggregator": {"name": "private_mean", "bound": 1.0, "noise": 1.0}} if private else {}
    lines: list[str] = []
    found = trial.try_out(parse({**FILE, **mean}), tmp_path, 1, lines.append)
    assert (found.equal, found.simulated) == ((None, None) if private else (True, "d"))
    assert ("no digest to compare" in lines[-1]) == private
