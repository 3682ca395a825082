"""The main functions of the library: `run` trains to the end, `train` yields round by round."""

from __future__ import annotations

import atexit
import functools
import inspect
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.backends import Backend
from fedtempo.data.augment import Augment
from fedtempo.data.federated import FederatedData
from fedtempo.devices import Devices, OwnDevices
from fedtempo.errors import ConfigError, is_count, python_numbers, require, unknown
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.metrics import Metric
from fedtempo.schedules import Now, Schedule
from fedtempo.server.admission import Admission
from fedtempo.server.asynchrony import Asynchrony
from fedtempo.server.cohort import Cohort
from fedtempo.server.fault_injection import Faults
from fedtempo.server.robust import Aggregator, plain_mean
from fedtempo.tasks import PerSample, Task
from fedtempo.training.extension import check_of_resumed
from fedtempo.training.loop import drained, train_experiment
from fedtempo.training.prepare import prepare
from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport
from fedtempo.training.storage.database import DATABASE
from fedtempo.training.storage.folders import require_unwritten
from fedtempo.training.trackers import as_trackers
from fedtempo.training.tracking import Tracker

P = ParamSpec("P")
R = TypeVar("R")


def _spelt(function: Callable[P, R]) -> Callable[P, R]:
    """The function, with errors of one line that name a missing setting, or the nearest known one to a misspelt one."""
    parameters = inspect.signature(function).parameters

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        require(not args, "settings", "given by name, such as run(model=..., data=...)", args)
        for name in kwargs:
            if name == "full_batch":  # of an experiment file
                raise ConfigError("full_batch is a setting of files. Here batch_size=None takes all rows in a step.")
            if name not in parameters:
                raise unknown("setting", name, parameters)
        for name, parameter in parameters.items():
            if parameter.default is parameter.empty and name not in kwargs:
                raise ConfigError(f"{name} must be given. Got nothing.")
        return function(**python_numbers(kwargs))  # type: ignore[call-arg]

    return call


@_spelt
def run(
    *,
    model: nn.Module | Callable[[], nn.Module],
    data: FederatedData,
    algorithm: Algorithm,
    rounds: int,
    cohort: int | float | Schedule | Callable[[Now], float] | Cohort = 1.0,
    cohorts: Sequence[Sequence[int]] | None = None,
    batch_size: int | None = 32,
    batches: Literal["epochs", "in_order", "replace"] = "epochs",
    augment: Augment | Callable[[dict[str, Tensor], Tensor], dict[str, Tensor]] | None = None,
    loss: str | Task | PerSample | None = None,
    metrics: Sequence[str | Metric] | None = None,
    metric: str | Metric | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    autocast: bool = False,
    device: str = "cpu",
    init: Mapping[str, Tensor] | Literal["model", "seed"] | None = None,
    init_clients: Mapping[int, Mapping[str, Tensor]] | None = None,
    evaluation: Evaluation | None = Evaluation(),
    admission: Admission | None = None,
    aggregator: Aggregator = plain_mean,
    quorum: int = 1,
    over_selection: float = 0.0,
    deadline: float | None = None,
    devices: Devices | OwnDevices | None = None,
    partial_work: bool = False,
    asynchrony: Asynchrony | None = None,
    faults: Faults | None = None,
    backend: str | Backend = "auto",
    workers: int | None = None,
    block: int | None = None,
    ray_address: str | None = None,
    ray_gpus: float | None = None,
    ray_loader: Callable[[], FederatedData] | None = None,
    worker_timeout: float | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    as_planned: bool = False,
    same_kind: bool = False,
    commit_every: int = 1,
    trackers: Iterable[str | Tracker] = (),
    progress: bool | None = None,
    states: bool = False,
) -> Result:
    """Train to the end and return the result.

    Wrong settings raise a `ConfigError`, `DataError` or `ModelError` of one line, before anything is trained.

    Args:
        model: An `nn.Module`, or a function that makes one. Weights that you loaded, trained or edited are kept.
            Those of an unchanged model of `fedtempo.models`, or of one that a function makes, are drawn from the seed.
        data: The clients and their rows.
        algorithm: One of `fedtempo.algorithms`, or your own.
        rounds: How many rounds to train.
        cohort: Clients per round: a number, a fraction of all, a schedule of numbers or a function of `Now`, a rule of
            `fedtempo.cohort`, or your own `fedtempo.cohort.Cohort`.
        cohorts: The clients of each round, as lists of numbers; replaces `cohort`.
        batch_size: Rows of a batch; None takes all rows of a client.
        batches: `"epochs"` visits every row once per epoch in random order, `"in_order"` in the order of the rows,
            `"replace"` draws each batch with replacement.
        augment: Changes training batches at random: one of `fedtempo.data.augment`, or your function of (batch, key).
        loss: The name of a task, a `Task`, or a function of (outputs, targets); by default what fits the targets.
        metrics: What to report besides the task's own metrics: names of `fedtempo.metrics`, or `Metric`s.
        metric: The main metric, by which validation selects the round; by default the first of `metrics`, or the
            task's own.
        seed: Everything random is derived from it.
        dtype: The floating-point type of the model and of the inputs. Data keep the type that they came in;
            `data.client(i, dtype=...)` gives rows as the run sees them, by default in float32.
        autocast: Whether the model computes in bfloat16 where torch holds that safe (`torch.autocast`); weights, losses
            and updates stay in `dtype`.
        device: Where the model trains, as torch names it, or `"auto"`: the accelerator that torch finds, else the CPU.
        init: Tensors to start from, `"model"` to keep the module's own weights, or `"seed"` to draw them all.
        init_clients: Personal tensors that particular clients start from.
        evaluation: How users are scored; None scores nobody.
        admission: Which uploads count; by default all that are finite.
        aggregator: How uploads are combined: the mean, or one of `fedtempo.robust`.
        quorum: The fewest uploads that make a round count.
        over_selection: The extra share of clients to ask; the first to answer count.
        deadline: Seconds that clients have for a round: real clients of a deployment, and simulated ones with devices.
        devices: How fast clients compute and send, what energy that takes and when they are available: one of
            `fedtempo.devices`, or your function of (seed, clients) that returns arrays by trait.
        partial_work: Whether clients that would be late stop at the deadline and send what they have.
        asynchrony: Take uploads as they come instead of waiting for a cohort: one of `fedtempo.asynchrony`. A round is
            then one version of the model, and `cohort` is how many clients work at the same time.
        faults: Faults to inject, to test how a run copes with them.
        backend: `"auto"`, `"serial"`, `"vectorised"`, `"processes"`, `"ray"`, or a `Backend`.
        workers: Worker processes, or Ray actors.
        block: Clients that are trained and added up together.
        ray_address: A Ray cluster to run on: `"auto"`, `"ray://..."` or `"local"`.
        ray_gpus: The share of a GPU for each Ray actor.
        ray_loader: A function by which Ray actors load the data themselves.
        worker_timeout: Seconds without a finished block after which a worker counts as hung and is replaced; by
            default twenty times the slowest block so far, at least a minute.
        out: A folder to which every round is committed.
        resume: Continue the run in `out` where it stopped. It may get more `rounds` than it had.
        as_planned: For a resumed run with more rounds: keep settings that depend on the number of rounds (a cosine
            schedule, how often users are scored) as they were planned. Without it such a run is refused.
        same_kind: For a resumed run: refuse another kind of processor (other instruction sets, another release of torch
            or numpy), which computes other last bits. Without it the run goes on and says so. A private run is always
            refused there.
        commit_every: Rounds that share one transaction.
        trackers: Tools to which every round's numbers are logged, such as `["progress", "tensorboard"]`.
        progress: True shows a bar in a terminal or a notebook, and lines elsewhere. By default a run logs one line, its
            task and where its first weights come from, and at its end the notes that begin with `warning:`. False
            leaves both out.
        states: Whether each report holds the whole state after its round in `report.state`: shared, server, and what
            the cohort keeps.

    """
    settings = dict(locals())  # every parameter, passed on by name
    rounds_to_come = train(**settings)
    # A folder with a run in it is refused as such.
    if out is not None and not resume and not (Path(out) / DATABASE).exists():
        require_unwritten(Path(out))
    result = drained(rounds_to_come)
    if out is not None:
        result.export(Path(out))
    return result


def _like(model: Callable[P, Any]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """A decorator: the function takes exactly the parameters of `model`, for readers, editors and type checkers."""

    def give(function: Callable[..., R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        known = inspect.signature(model).parameters.values()
        function.__signature__ = signature.replace(parameters=list(known))  # type: ignore[attr-defined]
        return function

    return give


@_spelt
@_like(run)
def train(**settings: Any) -> Generator[RoundReport, None, Result]:
    """Yield one `RoundReport` per round: the caller owns the loop. The generator returns the `Result`.

    Takes the parameters of `run`. A resumed run yields the rounds that are still to come.
    """
    # What belongs to the loop and its folder; everything else describes the experiment.
    out, resume = settings.pop("out", None), settings.pop("resume", False)
    states, as_planned = settings.pop("states", False), settings.pop("as_planned", False)
    commit_every, shows = settings.pop("commit_every", 1), settings.pop("progress", None)
    same_kind = settings.pop("same_kind", False)
    check_of_resumed("as_planned", as_planned, resume)
    check_of_resumed("same_kind", same_kind, resume)
    require(shows is None or isinstance(shows, bool), "progress", "true, false or None", shows)
    require(isinstance(states, bool), "states", "true or false", states)
    trackers = as_trackers(settings.pop("trackers", ()))
    require(is_count(commit_every), "commit_every", "an int >= 1", commit_every)
    require(out is not None or not resume, "out", "given where a run is to be resumed", out)
    # An empty name, such as a variable that is not set, would mean the current folder.
    require(out is None or (isinstance(out, (str, Path)) and str(out) != ""), "out", "a path", out)
    has_bar = any(tracker.name == "progress" for tracker in trackers)
    if shows and not has_bar:
        trackers = [*trackers, *as_trackers(["progress"])]
    return _closed_at_exit(
        train_experiment(
            prepare(**settings),
            None if out is None else Path(out),
            resume,
            commit_every,
            trackers,
            states=states,
            as_planned=as_planned,
            same_kind=same_kind,
            # A bar shows the notes of a run itself. In a plain script, only warnings are printed.
            notes_as_warnings=shows is None and not has_bar,
        )
    )


Rounds = Generator[RoundReport, None, Result]
_unfinished: weakref.WeakSet[Rounds] = weakref.WeakSet()


def _closed_at_exit(rounds: Rounds) -> Rounds:
    """The generator, to be closed at exit: a script may leave its loop early, and closing needs Python's modules."""
    _unfinished.add(rounds)
    return rounds


@atexit.register
def _close_unfinished() -> None:
    failed: list[Exception] = []
    for rounds in list(_unfinished):
        try:
            rounds.close()
        except ValueError:  # another thread is in it, and ends with the program
            pass
        except Exception as error:  # a full disk, for instance: the other runs are closed all the same
            failed.append(error)
    if failed:
        raise failed[0]
