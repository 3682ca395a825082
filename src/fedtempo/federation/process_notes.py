"""What a process finds out while a run goes on, and keeps for the rest of it. None of it changes a number."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from fedtempo.client.program import ClientProgram

KEPT_PROGRAMS = 8
"""Programs by which users are served that are kept: before and after fine-tuning, existing and new users."""


@dataclass
class ProcessNotes:
    """Belongs to one federation in one process; it is never sent."""

    most_clients: int | None = None
    """The most clients that fitted into memory side by side, once more did not; None for no limit."""
    programs: deque[tuple[object, ClientProgram]] = field(default_factory=lambda: deque(maxlen=KEPT_PROGRAMS))

    def program(self, key: object, make: Callable[[], ClientProgram]) -> ClientProgram:
        """The program of this key, made when it is first asked for: what it records of steps lives on in it."""
        for known, program in self.programs:
            if known == key:
                return program
        self.programs.append((key, make()))
        return self.programs[-1][1]
