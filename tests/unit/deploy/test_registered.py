"""Which nodes are let in: what Flower's commands could not do during a run is done later."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from fedtempo.deploy import registered
from fedtempo.deploy.registered import Registered
from fedtempo.errors import TrainingError


class Commands:
    """Stands for Flower's commands: each ends with the next of these exit codes and notes what it was asked."""

    def __init__(self, *codes: int) -> None:
        self.codes, self.asked = list(codes), list[str]()

    def __call__(self, name: str, line: list[str], log: Path) -> Any:
        self.asked.append(name)
        self.code = self.codes.pop(0)
        log.write_text(json.dumps({"error-message": "database is locked"} if self.code else {"node-id": "7"}))
        return self

    def wait(self, seconds: float) -> int:
        return self.code


def with_one_node(folder: Path, *codes: int) -> tuple[Registered, Commands, Path]:
    key, commands = folder / "1.pub", Commands(0, *codes)
    key.write_text("a key")
    nodes = Registered(folder, "link", commands)
    nodes.follow((key,))
    assert commands.asked == ["register"]
    return nodes, commands, key


def test_a_node_that_could_not_be_revoked_is_revoked_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    nodes, commands, _ = with_one_node(tmp_path, 1, 1, 0)
    with caplog.at_level(logging.WARNING, "fedtempo"):
        nodes.follow((), during_a_run=True)
        nodes.follow((), during_a_run=True)
        assert commands.asked == ["register", "unregister"], "it is left alone for a while"
        monkeypatch.setattr(registered.time, "monotonic", lambda after=registered.time.monotonic: after() + 60.0)
        nodes.follow((), during_a_run=True)
        monkeypatch.setattr(registered.time, "monotonic", lambda after=registered.time.monotonic: after() + 60.0)
        nodes.follow((), during_a_run=True)
        nodes.follow((), during_a_run=True)
    assert commands.asked == ["register", "unregister", "unregister", "unregister"]
    assert caplog.messages == [
        "node 7 could not be revoked: database is locked; it is tried again every 30 s",
        "node 7 is revoked: its key 1.pub was removed",
    ]


def test_what_cannot_be_done_at_the_start_is_an_error(tmp_path: Path) -> None:
    nodes, _, _ = with_one_node(tmp_path, 1)
    with pytest.raises(TrainingError, match="node 7 could not be revoked: database is locked"):
        nodes.follow(())


def test_nodes_that_are_registered_are_known_after_a_restart(tmp_path: Path) -> None:
    _, _, key = with_one_node(tmp_path)
    again = Commands()
    Registered(tmp_path, "link", again).follow((key,), during_a_run=True)
    assert again.asked == []
