"""What a finished run adds to its folder: metrics of every round, users' scores, a summary, models, the report page."""

from __future__ import annotations

import io
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import get_args

from fedtempo.config import EXPERIMENT
from fedtempo.errors import ConfigError
from fedtempo.report.html import report as page_about
from fedtempo.support.csv_rows import CsvRows
from fedtempo.support.display import shows
from fedtempo.support.files import OWNERS, read_inside, write_atomically
from fedtempo.support.json_text import JsonTable, json_text
from fedtempo.training.private_runs import WITHHELD
from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport
from fedtempo.training.saved import Which
from fedtempo.training.storage.folders import AT_THE_END, SUMMARY
from fedtempo.training.trackers.csv import rounds_as_csv
from fedtempo.training.view import AGAIN, Run, script_command, timestamp, versions

REPORT = "report.html"
MODEL = "model-{which}.safetensors"
"""The shared model of a finished run, `selected` and `last`."""
METRICS = ("metrics.jsonl", "metrics.csv")
USERS = "users.csv"
WRITTEN = (EXPERIMENT, *AT_THE_END)
"""The files of a finished run's folder, besides its database."""


@shows(Result, "folder")
def export(result: Result, folder: Path) -> None:
    """Metrics of every round, in lines of JSON and as a table, users' scores, a summary, and the report page."""
    # A private run tells nothing about single users.
    users = {} if result.privacy is not None or result.scores is None else {USERS: users_as_csv(result)}
    texts = users | {
        METRICS[0]: "".join(json_text(round_record(report)) + "\n" for report in result.history),
        METRICS[1]: rounds_as_csv(result.history),
        SUMMARY: json_text({**summary(result), **_circumstances(folder)}, indent=2) + "\n",
    }
    for name, text in texts.items():
        write_atomically(folder / name, text, "out", OWNERS)
    _write_models(result, folder)
    has_file = os.path.lexists(folder / EXPERIMENT)
    experiment = read_inside(folder, EXPERIMENT).decode(errors="replace") if has_file else None
    run = Run.of(result)
    run = replace(run, command=AGAIN, file=experiment) if experiment else run
    write_atomically(folder / REPORT, page_about([run], title=run.name), "out", OWNERS)


def _write_models(result: Result, folder: Path) -> None:
    """The shared model of the selected and of the last round, for use without this library.

    Neither is written where there is no single shared model: where some tensors are personal (`fedtempo export
    --client` hands out a client's), or where the algorithm predicts with several. What lies there from before goes.
    """
    for which in get_args(Which):
        path = folder / MODEL.format(which=which)
        try:
            result.save_model(path, "safetensors", which=which)
        except ConfigError:
            path.unlink(missing_ok=True)


def users_as_csv(result: Result) -> str:
    """A row per scored user of the selected round: its name, rows, and each metric before and after fine-tuning."""
    assert result.scores is not None
    data, groups = result.experiment.federation.problem.data, result.scores.groups()
    text = io.StringIO()
    writer = CsvRows(text)
    metrics = list(result.scores.existing_after.values)
    writer.row(["user", "name", "group", "rows", *(f"{m}_{when}" for m in metrics for when in ("before", "after"))])
    for group in ("existing", "new"):
        before, after = groups.get(f"{group}_before"), groups.get(f"{group}_after")
        if before is None or after is None:
            continue
        for place, client in enumerate(after.clients.tolist()):
            scores = [float(each.values[m][place]) for m in metrics for each in (before, after)]
            name = "" if data.names is None else data.names[client]
            cells = ["" if math.isnan(score) else score for score in scores]
            writer.row([client, name, group, int(after.samples[place]), *cells])
    return text.getvalue()


def _circumstances(folder: Path) -> JsonTable:
    """When and with what the run ended, and what runs it again where no experiment file does."""
    command = None if (folder / EXPERIMENT).is_file() else script_command()
    return {"finished": timestamp(), "versions": versions(), "command": command}


def round_record(report: RoundReport) -> JsonTable:
    """A round as plain data."""
    return {
        "round": report.number,
        "loss": report.loss,
        "clients": None if report.private else len(report.clients),
        "failures": [failure._asdict() for failure in report.failures],
        "costs": vars(report.costs),
        "total_costs": vars(report.total_costs),
        "measurements": report.measurements,
        "seconds": report.seconds,
        "time": report.time,
        "energy": report.energy,
        "total_time": report.total_time,
        "total_energy": report.total_energy,
        "validation": report.validation.summary() if report.validation else None,
        "test": report.test.summary() if report.test else None,
    }


@shows(Result, "summary")
def summary(result: Result) -> JsonTable:
    """A run as plain data."""
    selected, privacy = result.selected, result.privacy
    return {
        "algorithm": repr(result.experiment.federation.algorithm),
        "data": repr(result.experiment.federation.problem.data) if privacy is None else WITHHELD,
        "task": str(result.experiment.federation.problem.task),
        "metric": result.experiment.federation.problem.task.metric,
        "backend": result.experiment.backend.name,
        "ran_as": result.ran_as,
        "rounds": len(result.history),
        "stopped_early": result.stopped_early,
        "selected_round": selected.number if selected else None,
        "model_round": result.at().round + 1,
        "notes": list(result.notes),
        "scores": result.scores.summary() if result.scores else None,
        "costs": vars(result.costs),
        "never_heard": result.never_heard,
        **({} if privacy is None else {"privacy": privacy.record()}),
        "seconds": result.seconds,
        "time": result.time,
        "energy": result.energy,
        "digest": result.digest(),
    }
