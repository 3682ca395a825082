"""A run as its rounds tell it: one view, of a result in memory, of a saved one, or of a folder that may still grow."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedtempo.errors import ConfigError, StoreError
from fedtempo.evaluation.protocol import Scores
from fedtempo.support.files import read_inside
from fedtempo.support.kind import in_words, kind_here
from fedtempo.training.experiment import CONTENT, Experiment
from fedtempo.training.pictures import DataPicture, RatePlan, picture_of, plan_of
from fedtempo.training.private_runs import WITHHELD
from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport, RunHistory
from fedtempo.training.saved import SavedResult, load_result
from fedtempo.training.storage.database import DATABASE
from fedtempo.training.storage.folders import EXPERIMENT, SUMMARY
from fedtempo.training.storage.reader import RunReader

LIBRARIES = ("fedtempo", "torch", "numpy")
AGAIN = f"fedtempo run {EXPERIMENT}"
HASHES = ("model", "data", "version")
MOST_DIGITS = 100
"""Of a seed that is shown."""


@dataclass(frozen=True)
class Run(RunHistory):
    """A run: what decided its numbers, and what every round reported. `Run.of` makes one from anything that has rounds.

    Runs with the same label are seeds of one contestant; without a label, a run goes by its algorithm.
    """

    label: str | None
    history: Sequence[RoundReport]
    identity: Mapping[str, str] = field(default_factory=dict)
    """What decided the run's numbers, by field."""
    seed: int | None = None
    total: int | None = None
    """Rounds that are planned; more than there are while a run goes on."""
    place: str = "a result"
    """Where the run is, for messages."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Every choice of the run, in words."""
    digest: str | None = None
    command: str | None = None
    """The exact command that runs it again."""
    file: str | None = None
    """The experiment file that the command reads."""
    versions: Mapping[str, str] = field(default_factory=dict)
    finished: str | None = None
    """When, in ISO format."""
    experiment: Experiment | None = field(default=None, repr=False, compare=False)
    """Data, model and algorithm, where they are in memory."""
    picture: DataPicture | None = field(default=None, repr=False)
    plan: RatePlan | None = field(default=None, repr=False)

    @classmethod
    def of(cls, source: Result | SavedResult | str | Path, label: str | None = None, command: str | None = None) -> Run:
        """The run of a result, of a run folder, or of the file of a saved result. Nothing is trained or written.

        `command` runs a result again; without it, that is the command of the script that calls this.
        """
        if isinstance(source, Result):
            return _of_result(source, label, command)
        if isinstance(source, SavedResult):
            return _of_saved(source, label, "a saved result")
        if Path(source).is_file():
            return _of_saved(load_result(source), label, str(source))
        return RunFolder(Path(source)).refresh(label)

    @property
    def name(self) -> str:
        """What to call the run: its label, or its algorithm."""
        return self.label or self.identity.get("algorithm") or self.place

    @property
    def judged(self) -> Scores:
        """The test scores of the selected round; an error where the run has none."""
        if self.scores is None:
            rule = "evaluation must be on, and select a round by a finite validation score, in a run that is compared"
            raise ConfigError(f"{rule}. Got {self.place}, which has no scores.")
        return self.scores

    @property
    def complete(self) -> bool:
        """Whether all rounds are there, or validation has ended the run early."""
        wanted = self.total if self.total is not None else len(self.history)
        return len(self.history) >= wanted or (len(self.history) > 0 and self.history[-1].stops)

    def completed(self) -> Run:
        """The run itself; an error where it is not complete."""
        if not self.complete:
            raise ConfigError(
                f"a run to compare must be finished. Got {self.place}, which has {len(self.history)} of {self.total} "
                f"rounds: go on with `fedtempo resume {self.place}`."
            )
        return self

    def drawn(self) -> Run:
        """With pictures of its data and schedules in place of the experiment; of a private run there are none."""
        if self.experiment is None:
            return self
        if self.experiment.federation.private:
            return replace(self, experiment=None)
        picture, plan = picture_of(self.experiment.federation.problem.data), plan_of(self.experiment, self.history)
        return replace(self, experiment=None, picture=picture, plan=plan)

    def known_as(self, experiment: Experiment) -> Run:
        """With the data, model and algorithm that an experiment file has made anew."""
        kept = ("privacy",) if experiment.federation.private else ("notes", "selected round", "fine-tuning")
        own = {name: value for name, value in self.facts.items() if name in kept}
        return replace(self, experiment=experiment, facts={**facts_of(experiment), **own})


class RunFolder:
    """Follows a run folder without disturbing the process that may still be training it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._reader = RunReader(folder)

    def refresh(self, label: str | None = None) -> Run:
        """The run as far as it is stored by now."""
        history = self._reader.refresh()
        identity = self._reader.identity
        summary, text = _summary(self.folder), _text(self.folder, EXPERIMENT)
        notes = noted(summary.get("notes") or [])
        return Run(
            label,
            history,
            identity,
            _seed(identity),
            int(identity.get("rounds", len(history))),
            str(self.folder),
            {**{name: value for name, value in identity.items() if not _is_hash(name)}, **notes} | _privacy(summary),
            summary.get("digest"),
            summary.get("command") if text is None else AGAIN,
            text,
            summary.get("versions") or {"fedtempo": identity.get("version", "")},
            summary.get("finished"),
        )

    def age(self) -> float:
        """Seconds since the last write."""
        files = (self.folder / DATABASE, self.folder / f"{DATABASE}-wal")
        return max(0.0, time.time() - max(file.stat().st_mtime for file in files if file.exists()))


def _of_result(result: Result, label: str | None, command: str | None) -> Run:
    choices, history = result.experiment, result.history
    privacy = {} if result.privacy is None else {"privacy": str(result.privacy)}
    return Run(
        label,
        history,
        choices.identity(strict=False),
        choices.federation.problem.seed,
        len(history),
        label or "a result",
        facts_of(choices) | noted(result.notes) | privacy,
        result.digest(),
        command or script_command(),
        None,
        versions(),
        timestamp(),
        choices,
    )


def _of_saved(saved: SavedResult, label: str | None, place: str) -> Run:
    facts = {name: value for name, value in saved.identity.items() if not _is_hash(name)}
    return Run(
        label,
        saved.history,
        saved.identity,
        _seed(saved.identity),
        len(saved.history),
        place,
        facts | noted(saved.notes) | _privacy(saved.summary),
        saved.digest(),
        versions={"fedtempo": saved.identity.get("version", "")},
    )


def _seed(identity: Mapping[str, str]) -> int | None:
    seed = identity.get("seed", "")
    return int(seed) if seed.isdecimal() and len(seed) <= MOST_DIGITS else None


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


def _is_hash(field: str) -> bool:
    return field in HASHES or field.endswith(CONTENT)


def _privacy(summary: Mapping[str, Any]) -> dict[str, str]:
    """What a finished private run was accounted for."""
    privacy = summary.get("privacy")
    return {"privacy": str(privacy.get("words"))} if isinstance(privacy, dict) else {}


def _text(folder: Path, name: str) -> str | None:
    """A file of the folder as text; None where it has none."""
    if not os.path.lexists(folder / name):
        return None
    try:
        return read_inside(folder, name).decode(errors="replace")
    except OSError as error:
        raise StoreError(f"{name} in {folder} cannot be read: {error.strerror}.") from None


def _summary(folder: Path) -> Mapping[str, Any]:
    """What was written at the end of the run; nothing before that. Somebody else may have written it."""
    text = _text(folder, SUMMARY)
    if text is None:
        return {}
    try:
        values = json.loads(text)
        json.dumps(values, ensure_ascii=False).encode()  # half a character, which JSON can name, cannot be written
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise StoreError(f"{SUMMARY} is damaged: it must be a JSON object.")
    for name, (rule, holds) in _FORMS.items():
        if values.get(name) is not None and not holds(values[name]):
            raise StoreError(f"{SUMMARY} is damaged: {name} must be {rule}.")
    return values


def _is_text(value: object) -> bool:
    return isinstance(value, str)


_FORMS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("digest", "command", "finished"), ("text", _is_text)),
    "versions": ("an object of texts", lambda value: isinstance(value, dict) and all(map(_is_text, value.values()))),
    "notes": ("a list of texts", lambda value: isinstance(value, list) and all(map(_is_text, value))),
    "privacy": ("an object", lambda value: isinstance(value, dict)),
}
"""The form of what a page shows of the summary."""
