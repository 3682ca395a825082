"""What a report knows of a run: plain values, whether they come from a result or from a run folder."""

from __future__ import annotations

import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from fedtempo.report.pictures import DataPicture, RatePlan, picture_of, plan_of
from fedtempo.support.kind import in_words, kind_here
from fedtempo.training.experiment import Experiment
from fedtempo.training.private_runs import WITHHELD
from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport, RunHistory

LIBRARIES = ("fedtempo", "torch", "numpy")


@dataclass(frozen=True)
class ReportRun(RunHistory):
    """One run as a page shows it. Runs with the same label are seeds of one algorithm and are drawn together."""

    label: str
    history: Sequence[RoundReport]
    seed: int | None = None
    total: int | None = None
    """Rounds that are planned; more than there are while a run goes on."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Every choice of the run, in words."""
    picture: DataPicture | None = None
    plan: RatePlan | None = None
    digest: str | None = None
    command: str | None = None
    """The exact command that runs it again."""
    experiment: str | None = None
    """The experiment file that the command reads."""
    versions: Mapping[str, str] = field(default_factory=dict)
    finished: str | None = None
    """When, in ISO format."""

    @classmethod
    def of(
        cls, result: Result, label: str | None = None, *, command: str | None = None, experiment: str | None = None
    ) -> ReportRun:
        """A finished run. The command is that of the script that calls this, unless one is given."""
        choices = result.experiment
        return cls(
            label=label or repr(choices.federation.algorithm),
            history=result.history,
            seed=choices.federation.problem.seed,
            total=len(result.history),
            facts=facts_of(choices)
            | noted(result.notes)
            | ({} if result.privacy is None else {"privacy": str(result.privacy)}),
            picture=None if choices.federation.private else picture_of(choices.federation.problem.data),
            plan=None if choices.federation.private else plan_of(choices, result.history),
            digest=result.digest(),
            command=command or script_command(),
            experiment=experiment,
            versions=versions(),
            finished=timestamp(),
        )


def facts_of(experiment: Experiment) -> dict[str, str]:
    """Every choice that decides a run's numbers, as words."""
    federation = experiment.federation
    parameters = sum(p.numel() for p in federation.problem.model.parameters())
    workers = f" in {experiment.workers} processes" if experiment.workers > 1 and not experiment.calibrates else ""
    facts = {
        "algorithm": repr(federation.algorithm),
        "data": repr(federation.problem.data),
        "model": f"{type(federation.problem.model).__name__}, {parameters:,} parameters",
        "rounds": str(experiment.rounds),
        "cohort": experiment.cohort.description,
        "batches": repr(federation.problem.batching),
        "task": str(federation.problem.task),
        "seed": str(federation.problem.seed),
        "evaluation": repr(experiment.evaluation),
        "backend": f"{experiment.backend.name}{workers}, {federation.problem.dtype}".replace("torch.", ""),
    }
    if federation.policy is not None:
        facts["uploads"] = f"{federation.policy!r}, quorum {experiment.quorum}"
    if federation.problem.devices is not None:
        limit = "" if experiment.deadline is None else f", deadline {experiment.deadline:g} s"
        partial = ", partial work" if experiment.partial_work else ""
        facts["devices"] = f"{federation.problem.devices.devices!r}{limit}{partial}"
    if experiment.asynchrony is not None:
        facts["asynchrony"] = repr(experiment.asynchrony)
    promised = experiment.guarantee()
    if promised is not None:  # sizes and labels of the clients are what is protected
        facts |= {"data": WITHHELD, "privacy": str(promised)}
    return facts


def noted(notes: Sequence[str]) -> dict[str, str]:
    """A run's notes as facts; which round was selected and what fine-tuning was are facts of their own."""
    own = {"model: ": "selected round", "fine-tuning: ": "fine-tuning"}
    facts, rest = {}, []
    for note in notes:
        start = next((start for start in own if note.startswith(start)), None)
        if start is None:
            rest.append(note)
        else:
            facts[own[start]] = note.removeprefix(start)
    return facts | ({"notes": "; ".join(rest)} if rest else {})


def versions() -> dict[str, str]:
    """Of Python and the libraries, and the kind of processor that decides a run's last bits."""
    found = {name: version(name) for name in LIBRARIES}
    return {"python": platform.python_version(), **found, "kind": in_words(kind_here())}


def timestamp() -> str:
    """Now, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def script_command() -> str | None:
    """`python script.py ...` where that is what is running."""
    script = sys.argv[0] if sys.argv else ""
    return shlex.join(["python", *sys.argv]) if script.endswith(".py") and Path(script).is_file() else None
