"""One line of JSON per round, written as the rounds end."""

from __future__ import annotations

from pathlib import Path

from fedtempo.support.json_text import json_text
from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport
from fedtempo.training.trackers.lines import whole_lines
from fedtempo.training.trackers.numbers import numbers
from fedtempo.training.tracking import RunInfo, Tracker


def jsonl(path: str | Path | None = None) -> Tracker:
    """Lines of JSON in `path`, by default `rounds.jsonl` in the run folder."""
    return JsonLines(None if path is None else Path(path))


class JsonLines:
    """A line per round: its number and all its numbers by name."""

    name = "jsonl"

    def __init__(self, path: Path | None) -> None:
        self._given = path
        self._path = Path()

    def start(self, run: RunInfo) -> int:
        """Keep the whole lines of a resumed run."""
        self._path = run.place(self._given, "rounds.jsonl", self.name)
        return whole_lines(self._path, self.name)[0]

    def round(self, report: RoundReport) -> None:
        """Append a line."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json_text({"round": report.number, **numbers(report)}) + "\n")

    def end(self, result: Result | None) -> None:
        """Nothing is open."""
