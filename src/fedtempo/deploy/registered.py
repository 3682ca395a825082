"""Which nodes a SuperLink lets in: those whose public keys are in the server's folder, also during a run."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fedtempo.deploy.processes import Running
from fedtempo.errors import TrainingError
from fedtempo.training.log import LOGGER

REGISTERED = "nodes.json"
UNKNOWN = 0
"""Stands for a node that was registered by a server that ended before it could note the node's number."""
SECONDS = 120.0
"""How long one of Flower's commands may take."""
RETRY_SECONDS = 30.0
"""How long a change that could not be made during a run is left alone before it is tried again."""


class Registered:
    """The nodes that are registered, by the hash of their key. Kept in a file, because the SuperLink keeps them too."""

    def __init__(self, home: Path, link: str, start: Callable[[str, list[str], Path], Running]) -> None:
        self._home, self._link, self._start = home, link, start
        try:
            found = json.loads((home / REGISTERED).read_text())
            self._nodes = {str(key): (str(name), int(node)) for key, (name, node) in found.items()}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            self._nodes = {}
        self._next_try: dict[str, float] = {}

    def follow(self, public: tuple[Path, ...], during_a_run: bool = False) -> None:
        """Register the keys that are new, and revoke the nodes whose keys are not there any more.

        What cannot be done is an error at the start. During a run it is said, once, and tried again: a SuperLink that
        was busy for a moment must not let a revoked node stay.
        """
        keys = {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in public}
        changes: list[tuple[str, Callable[[str], None]]]
        changes = [(key, self._revoke) for key in self._nodes.keys() - keys.keys()]
        changes += [(key, partial(self._register, public=keys[key])) for key in keys.keys() - self._nodes.keys()]
        for key, change in changes:
            if time.monotonic() < self._next_try.get(key, 0.0):
                continue
            try:
                change(key)
                self._next_try.pop(key, None)
            except TrainingError as error:
                if not during_a_run:
                    raise
                if key not in self._next_try:
                    LOGGER.warning("%s; it is tried again every %g s", error, RETRY_SECONDS)
                self._next_try[key] = time.monotonic() + RETRY_SECONDS

    def _register(self, key: str, public: Path) -> None:
        code, answer = self._flower("register", str(public))
        said = str(answer.get("error-message", code))
        if code != 0 and "already in use" not in said:
            raise TrainingError(f"node key {public.name} could not be registered: {said}")
        self._keep({**self._nodes, key: (public.name, int(answer.get("node-id", UNKNOWN)))})

    def _revoke(self, key: str) -> None:
        name, node = self._nodes[key]
        code, answer = self._flower("unregister", str(node))
        if code != 0:
            raise TrainingError(f"node {node} could not be revoked: {answer.get('error-message', code)}")
        LOGGER.warning("node %d is revoked: its key %s was removed", node, name)
        self._keep({other: value for other, value in self._nodes.items() if other != key})

    def _flower(self, command: str, argument: str) -> tuple[int | None, dict[str, str]]:
        """One of Flower's commands about nodes: its exit code and its answer, the last JSON in its log."""
        log = self._home / f"{command}.log"
        log.unlink(missing_ok=True)
        line = ["flwr", "supernode", command, argument, self._link, "--format", "json"]
        running = self._start(command, line, log)
        code = running.wait(SECONDS)
        text = log.read_text(errors="replace")
        try:
            answer = json.loads(text[text.index("{") :])
        except ValueError:
            answer = {"error-message": running.log_tail()}
        return code, answer

    def _keep(self, nodes: dict[str, tuple[str, int]]) -> None:
        self._nodes = nodes
        temporary = self._home / f".{REGISTERED}"
        temporary.write_text(json.dumps(nodes, indent=1))
        temporary.replace(self._home / REGISTERED)
