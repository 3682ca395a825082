"""A runner's side of taking turns: it does a round when told to, and answers in lines of JSON.

A runner is a script that runs in its framework's own environment. What frameworks print goes to the log.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Weights = Callable[[], Sequence[np.ndarray]]
"""The shared weights as they are now, in the order of the torch model's parameters."""


class Turns:
    """Orders come in on what was standard input, answers go out on what was standard output."""

    def __init__(self) -> None:
        self._orders = os.fdopen(os.dup(0))
        self._answers = os.fdopen(os.dup(1), "w")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        os.close(nothing)

    def ready(self, configuration: str, *packages: str) -> None:
        """Say what runs here; the first answer."""
        versions = {package: importlib.metadata.version(package) for package in packages}
        self.say(configuration=configuration, versions=versions)

    def begin(self, weights: Weights) -> bool:
        """Wait for the next round; false when there is none. Weights are handed over in between when asked for."""
        for line in self._orders:
            order, _, place = line.strip().partition(" ")
            if order == "round":
                return True
            np.savez(place, *weights())
            self.say(saved=place)
        return False

    def done(self, cohort: Sequence[int]) -> None:
        """A round is over; who took part."""
        self.say(cohort=[int(client) for client in cohort])

    def say(self, **facts: Any) -> None:
        """One answer."""
        self._answers.write(json.dumps(facts) + "\n")
        self._answers.flush()


def serve(runner: Callable[[Turns], None]) -> None:
    """Run a runner to its end and tell the driver if it fails."""
    turns = Turns()
    try:
        runner(turns)
    except BaseException as error:
        traceback.print_exc()
        turns.say(failed=f"{type(error).__name__}: {error}")
        raise
