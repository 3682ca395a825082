"""MLflow: a run with parameters, metrics by round and tags. It needs the extra `mlflow`."""

from __future__ import annotations

import os
import time
from typing import Any

from fedtempo.errors import ConfigError, OutputError, first_line
from fedtempo.support.files import read_inside, write_atomically
from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport
from fedtempo.training.trackers.numbers import numbers
from fedtempo.training.tracking import RunInfo, Tracker, tracker_library

ALWAYS = "seconds"
"""A metric that every round has: its last step tells which rounds a resumed run has logged."""
LONGEST = 500
"""Characters of a parameter that every MLflow server takes."""


def mlflow(uri: str | None = None, experiment: str = "fedtempo") -> Tracker:
    """A run in the store `uri`: by default what MLFLOW_TRACKING_URI says, else `mlflow.db` in the run folder."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # a run tells nobody but the store it was given
    tracker_library("mlflow", "mlflow")
    return MLflow(uri or os.environ.get("MLFLOW_TRACKING_URI"), experiment)


class MLflow:
    """Settings as parameters, every number of a round as a metric at that step."""

    name = "mlflow"

    def __init__(self, uri: str | None, experiment: str) -> None:
        self._uri, self._experiment = uri, experiment
        self._client: Any = None
        self._run = ""

    def start(self, run: RunInfo) -> int:
        """Open the store; a resumed run goes on in the MLflow run whose id its folder holds."""
        note = None if run.folder is None else run.folder / "mlflow-run.txt"
        uri = self._uri
        if uri is None:
            if run.folder is None:
                raise ConfigError("tracker 'mlflow' must be given a uri where the run has no out folder. Got none.")
            uri = f"sqlite:///{run.folder.absolute() / 'mlflow.db'}"
        try:
            self._client = tracker_library("mlflow", self.name).MlflowClient(tracking_uri=uri)
            if run.resumed and note is not None and note.exists():
                self._run = read_inside(note.parent, note.name, 1000).decode().strip()
                self._client.update_run(self._run, status="RUNNING")
                return self._held()
            self._begin(run)
        except Exception as error:  # whatever the store's driver raises, it is this address that does not work
            raise OutputError(f"mlflow uri must be a store that works. Got {uri!r}: {first_line(error)}.") from error
        # Written after the run was made: a kill in between leaves a run that nobody resumes, never an id without a run.
        if note is not None:
            write_atomically(note, self._run + "\n")
        return 0

    def round(self, report: RoundReport) -> None:
        """Log the round's metrics in one batch."""
        metric = tracker_library("mlflow.entities", self.name).Metric
        now = int(time.time() * 1000)
        metrics = [metric(name, value, now, report.number) for name, value in numbers(report).items()]
        self._client.log_batch(self._run, metrics=metrics)

    def end(self, result: Result | None) -> None:
        """Tag a finished run with its digest; a stopped one is marked as killed."""
        if result is not None:
            self._client.set_tag(self._run, "digest", result.digest())
        self._client.set_terminated(self._run, "FINISHED" if result is not None else "KILLED")

    def _begin(self, run: RunInfo) -> None:
        known = self._client.get_experiment_by_name(self._experiment)
        number = self._client.create_experiment(self._experiment) if known is None else known.experiment_id
        parameter = tracker_library("mlflow.entities", self.name).Param
        self._run = self._client.create_run(number, run_name=run.settings.get("algorithm", "")[:100]).info.run_id
        parameters = [parameter(name, value[:LONGEST]) for name, value in run.settings.items()]
        self._client.log_batch(self._run, params=parameters)

    def _held(self) -> int:
        history = self._client.get_metric_history(self._run, ALWAYS)
        return max((metric.step for metric in history), default=0)
