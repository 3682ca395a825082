"""What a reproduction is made of: data, model, runs at four scales, what is measured and what the paper reports.

Everything here is a value. `running` performs the runs, `outcomes` holds what was measured, `claims` judges it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import nn

from fedtempo.algorithms import Algorithm
from fedtempo.data import FederatedData, Split, Table, load
from fedtempo.data.files.folders import DATA_VARIABLE
from fedtempo.errors import require
from fedtempo.models import MODELS
from fedtempo.papers.framework.user_scores import UserScore, user_scores
from fedtempo.randomness import generator
from fedtempo.training.result import Result
from fedtempo.training.run import run

FIRST_TUNING_SEED = 10_000
"""Judged seeds are smaller: no seed is both tuned on and judged."""


@dataclass(frozen=True)
class Data:
    """A data set by name and how it is divided; loaded only where a run needs it."""

    name: str
    split: Split | None = None
    seed: int = 0
    """The seed of the division (and of `rows`)."""
    division: Mapping[str, Any] = field(default_factory=dict)
    """More of `Table.split`: new_clients, validation, test, min_samples, relabel."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The loader's own settings."""
    rows: int | None = None
    """Keep a seeded sample of this many rows, for scales below the paper's; all by default."""

    def load(self, data_dir: Path | None) -> FederatedData:
        """Load and divide; runs on the same data, one after the other in a process, do so once."""
        return _divided(self, data_dir)

    def __hash__(self) -> int:
        return hash(repr(self))


@functools.lru_cache(maxsize=1)
def _divided(data: Data, data_dir: Path | None) -> FederatedData:
    table = load(data.name, data_dir, **data.settings)
    sample = table if data.rows is None else _sampled(table, data.rows, data.seed)
    return sample.split(data.split, seed=data.seed, **data.division)


def _sampled(table: Table, rows: int, seed: int) -> Table:
    require(table.edges is None, "rows", "left out for a graph", rows)
    chosen = np.sort(generator(seed, "rows").choice(len(table), min(rows, len(table)), replace=False))
    return replace(
        table,
        columns={name: np.asarray(column[chosen]) for name, column in table.columns.items()},
        keys=None if table.keys is None else table.keys[chosen],
        parts=None if table.parts is None else table.parts[chosen],
    )


class ModelMaker(Protocol):
    """What a run's network comes from: a `Model`, or a value of a paper's own that prints as what it is."""

    def maker(self, data_dir: Path | None) -> Callable[[], nn.Module]:
        """The function that makes the network."""


@dataclass(frozen=True)
class Model:
    """One of `fedtempo.models` by name."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    files: str | None = None
    """A folder beside the data sets' own whose path goes to the model as `source` (BERT's configuration)."""

    def maker(self, data_dir: Path | None) -> Callable[[], nn.Module]:
        """The function that makes the model."""
        folder = data_dir or os.environ.get(DATA_VARIABLE)
        source = {"source": str(Path(folder) / self.files)} if self.files and folder else {}
        return functools.partial(MODELS[self.name], **self.settings, **source)


@dataclass(frozen=True)
class Curve:
    """One measured quantity over rounds, steps or bytes."""

    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Measured:
    """What was measured of one run. Two of them join with `|`."""

    values: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, Curve] = field(default_factory=dict)
    users: Mapping[str, tuple[UserScore, ...]] = field(default_factory=dict)
    """Every user's test score in the selected round, by group: to resample users, and to see who gains."""
    seconds: float | None = field(default=None, compare=False)
    """Processor seconds that the run took; None where nothing was timed."""

    def __or__(self, other: Measured) -> Measured:
        return Measured(
            {**self.values, **other.values},
            {**self.curves, **other.curves},
            {**self.users, **other.users},
            self.seconds if other.seconds is None else other.seconds,
        )


Measure = Callable[[Result], Measured]


@dataclass(frozen=True)
class Training:
    """A labelled run of `fedtempo.run` and what is measured of its result."""

    label: str
    data: Data
    model: ModelMaker
    algorithm: Algorithm
    settings: Mapping[str, Any]
    """The other settings of `fedtempo.run`: rounds, cohort, batch_size, seed, evaluation, ..."""
    measures: tuple[Measure, ...]

    @property
    def data_sets(self) -> tuple[str, ...]:
        """The data sets that must be here."""
        return (self.data.name,)

    def has_validation(self, data_dir: Path | None) -> bool:
        """Whether some client has validation rows."""
        bounds = self.data.load(data_dir).bounds
        return bool((bounds[:, 2] > bounds[:, 1]).any())

    def arguments(self, data_dir: Path | None) -> dict[str, Any]:
        """Keyword arguments for `fedtempo.run`; one process, as several runs go on at once."""
        return {
            "model": self.model.maker(data_dir),
            "data": self.data.load(data_dir),
            "algorithm": self.algorithm,
            "workers": 1,
            "progress": False,
            **self.settings,
        }

    def perform(self, data_dir: Path | None) -> Measured:
        """Train, and measure the result."""
        result = run(**self.arguments(data_dir))
        measured = Measured(users=user_scores(result))
        return functools.reduce(Measured.__or__, (measure(result) for measure in self.measures), measured)

    def asked(self) -> dict[str, object]:
        """What is run and measured, for its key."""
        network = {"data": self.data, "model": self.model, "algorithm": self.algorithm}
        return {**network, "settings": self.settings, "measures": self.measures}


@dataclass(frozen=True)
class Calculation:
    """A labelled run without training: a formula of the paper, evaluated."""

    label: str
    settings: Mapping[str, Any]
    compute: Callable[..., Measured]
    """Called with the settings."""

    data_sets: tuple[str, ...] = ()

    def perform(self, data_dir: Path | None) -> Measured:
        """Evaluate the formula."""
        return self.compute(**self.settings)

    def asked(self) -> dict[str, object]:
        """What is calculated, for its key."""
        return {"calculation": self.compute, "settings": self.settings}


PaperRun = Training | Calculation


@dataclass(frozen=True)
class TunedSetting:
    """One setting that is tuned before anything is judged: its candidates, and the run on which they are tried."""

    label: str
    values: tuple[float, ...]
    also: tuple[str, ...] = ()
    """Other labels that take the chosen value."""

    def serves(self, only: Sequence[str]) -> bool:
        """Whether one of these labels needs the value; all labels are meant where none is given."""
        return not only or bool({self.label, *self.also} & set(only))


@dataclass(frozen=True)
class Tuning:
    """The same tuning budget for every contestant, on seeds that are never judged."""

    contestants: Mapping[str, TunedSetting]
    """By the name under which `Scale.rate` hands out what was chosen."""
    column: str
    """The measured value that chooses. It comes from validation rows."""
    higher_is_better: bool = True
    seeds: tuple[int, ...] = (FIRST_TUNING_SEED,)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the scale that trials have otherwise, such as fewer rounds; the same for every contestant."""
    tie: float = 0.002
    """Scores of two candidates that differ by no more are level: 0.2 points."""

    def __post_init__(self) -> None:
        require(min(self.seeds) >= FIRST_TUNING_SEED, "tuning seeds", f">= {FIRST_TUNING_SEED}", self.seeds)


@dataclass(frozen=True)
class Settling:
    """When a run counts as trained: the last quarter of a measured curve improves by less than `within`."""

    curve: str
    within: float
    higher_is_better: bool = True


@dataclass(frozen=True)
class Scale:
    """How large a reproduction is, what is tuned at it, and when its runs count as trained."""

    seeds: int
    minutes: float
    """About how long it takes on two cores."""
    settings: Mapping[str, Any]
    tuning: Tuning | None = None
    settling: Settling | None = None
    chosen: Mapping[str, float] = field(default_factory=dict)
    """What tuning chose, by contestant."""

    def __getitem__(self, name: str) -> Any:
        return self.settings[name]

    def rate(self, contestant: str, default: float) -> float:
        """What tuning chose for a contestant; the default where the scale tunes nothing."""
        return self.chosen.get(contestant, default)


def sized(
    seeds: int, minutes: float, tuning: Tuning | None = None, settling: Settling | None = None, **settings: Any
) -> Scale:
    """A scale: `sized(seeds=3, minutes=2, rounds=100)["rounds"]` is 100."""
    return Scale(seeds, minutes, settings, tuning, settling)


A_POINT = 0.01


@dataclass(frozen=True)
class Column:
    """A measured value's heading, how it is printed, and how its differences are judged."""

    heading: str
    format: str = ".3f"
    exact: bool = False
    """A count that the settings decide: it has no uncertainty, even with one seed."""
    margin: float | None = None
    """Differences smaller than this are no difference; None for a quantity of which every difference counts."""
    settles: bool = False
    """A score of trained models: it says nothing before training has converged."""
    of_one_run: bool = True
    """False where it is made of several runs' scores, such as a gain over another run: training on may lower it."""
    made_of: Callable[[str], Sequence[str]] | None = None
    """The labels that a label's value is made of; its own alone by default."""

    @property
    def point(self) -> float | None:
        """What one point of accuracy is here: a hundredth, or 1 of a score in percent; None where it is no score."""
        return self.margin if self.settles or self.margin == A_POINT else None


def score_column(
    heading: str,
    format: str = ".3f",
    margin: float = A_POINT,
    of_one_run: bool = True,
    made_of: Callable[[str], Sequence[str]] | None = None,
) -> Column:
    """A column of trained models' scores; one point of accuracy is the smallest difference that counts."""
    return Column(heading, format, margin=margin, settles=True, of_one_run=of_one_run, made_of=made_of)


Values = Mapping[str, Mapping[str, float]]
