"""A trial compares digests where two runs can have the same one. The real programs run in `tests/e2e/deploy`."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr")

from fedtempo.config import parse
from fedtempo.deploy.launch import trial

FILE = {
    "rounds": 1,
    "data": {"name": "digits", "split": {"name": "iid", "clients": 2}},
    "model": {"name": "softmax_regression", "inputs": 64, "outputs": 10},
    "algorithm": {"name": "fedavg", "lr": 0.1, "steps": 1},
}


@pytest.mark.parametrize("private", [True, False])
def test_a_private_trial_has_no_digest_to_compare(
    private: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve(out: Path, *others: object, new: bool) -> None:
        out.mkdir(parents=True)
        (out / "summary.json").write_text(json.dumps({"digest": "d", "seconds": 1.0}))

    monkeypatch.setattr(trial, "be_server", serve)
    monkeypatch.setattr(trial, "run", lambda **settings: SimpleNamespace(digest=lambda: "d"))
    monkeypatch.setattr(trial, "make_keys", lambda *arguments: None)
    monkeypatch.setattr(trial, "_nodes", lambda *arguments: nullcontext())
    mean = {"aggregator": {"name": "private_mean", "bound": 1.0, "noise": 1.0}} if private else {}
    lines: list[str] = []
    found = trial.try_out(parse({**FILE, **mean}), tmp_path, 1, lines.append)
    assert (found.equal, found.simulated) == ((None, None) if private else (True, "d"))
    assert ("no digest to compare" in lines[-1]) == private
