"""The run folder: the resolved experiment, one line of metrics per round, a summary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedtempo.config import ExperimentFile, dump, fingerprint
from fedtempo.errors import OutputError
from fedtempo.result import Result, RoundReport


class RunFolder:
    """Writes a run's files. Anything that cannot be written is found before the first round."""

    def __init__(self, path: Path, experiment: ExperimentFile) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            if any(path.glob("metrics.jsonl")):
                raise OutputError(f"out must be a new folder. Got {path}, which holds a run already.")
            text = f"# sha256 {fingerprint(experiment)}\n{dump(experiment)}"
            (path / "experiment.toml").write_text(text, encoding="utf-8")
            self._metrics = (path / "metrics.jsonl").open("w", encoding="utf-8")
        except OutputError:
            raise
        except OSError as error:
            raise OutputError(f"out must be a folder that can be written. Got {path}: {error.strerror}.") from None

    def add(self, report: RoundReport) -> None:
        """One line per round."""
        self._metrics.write(json.dumps(record(report)) + "\n")
        self._metrics.flush()

    def finish(self, result: Result) -> None:
        """The summary and the report page."""
        self._metrics.close()
        temporary = self.path / "summary.json.partial"
        temporary.write_text(json.dumps(summary(result), indent=2) + "\n", encoding="utf-8")
        temporary.replace(self.path / "summary.json")
        result.report(self.path / "report.html")


def record(report: RoundReport) -> dict[str, Any]:
    """A round as plain data."""
    return {
        "round": report.round,
        "loss": report.loss,
        "clients": len(report.clients),
        "failures": [failure._asdict() for failure in report.failures],
        "costs": vars(report.costs),
        "total_costs": vars(report.total_costs),
        "measurements": report.measurements,
        "seconds": report.seconds,
        "validation": report.validation.summary() if report.validation else None,
        "test": report.test.summary() if report.test else None,
    }


def summary(result: Result) -> dict[str, Any]:
    """A run as plain data."""
    selected = result.selected
    return {
        "algorithm": repr(result.experiment.federation.algorithm),
        "data": repr(result.experiment.federation.data),
        "backend": result.experiment.backend.name,
        "rounds": len(result.history),
        "selected_round": selected.round if selected else None,
        "scores": result.scores.summary() if result.scores else None,
        "costs": vars(result.costs),
        "seconds": result.seconds,
        "digest": result.digest(),
    }
