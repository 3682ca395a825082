"""An experiment: every choice of a run, checked before anything is trained.

`training/prepare.py` makes one of the user's settings, or refuses them. `training/loop.py` trains it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from importlib.metadata import version

from torch import nn

from fedtempo.backends import Backend, Calibration, Choice, Cluster, vectorised
from fedtempo.errors import ConfigError
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.federation.costs import StageFlops
from fedtempo.federation.federation import Federation
from fedtempo.models.weights import KEPT, Start
from fedtempo.params import Params
from fedtempo.server.asynchrony import Asynchrony
from fedtempo.server.cohort import Cohort
from fedtempo.server.privacy_accounting import Guarantee
from fedtempo.support.identity import Unstable, identity_of, rough_identity_of
from fedtempo.training.private_runs import guarantee

CONTENT = " (content)"
"""Ends the names of identity fields that are hashes and stand beside a field in words."""
STARTS = f"init_clients{CONTENT}"
COMPUTED = ("model", "data", STARTS)
"""Fields of the identity that hold numbers computed before training: first weights, and columns that were scaled."""


@dataclass(frozen=True)
class Experiment:
    """A federation and how it is to be run. `backend`, `workers` and `block` are settled: nothing here says "auto"."""

    federation: Federation
    backend: Backend
    workers: int
    block: int
    cohort: Cohort
    rounds: int
    evaluation: Evaluation | None
    first_shared: Params
    quorum: int = 1
    over_selection: float = 0.0
    deadline: float | None = None
    """Seconds that clients have for a round; later answers do not count. Simulated clients need devices to be late."""
    partial_work: bool = False
    """Whether simulated clients stop at the deadline and send what they have."""
    asynchrony: Asynchrony | None = None
    """How uploads are taken as they come; None waits for whole cohorts."""
    cluster: Cluster | None = None
    """The Ray cluster, where the clients run on one; `workers` is 0 for one worker per processor."""
    calibrates: bool = False
    """Whether the first round measures if `workers` save time; if not, clients run in this process."""
    worker_timeout: float | None = None
    """Seconds of silence after which a worker counts as hung; None goes by the slowest block so far."""
    start: Start = KEPT
    """Where the first weights come from."""
    notes: tuple[str, ...] = ()
    """What was decided for the user and might surprise, a line each."""
    operations: tuple[StageFlops, ...] | None = None
    """What a step of every stage costs, as the checks have counted it; None where the run has to count."""

    @cached_property
    def clients_keep_nothing(self) -> bool:
        """Whether no client has anything of its own between rounds, so that blocks read nothing from the store."""
        return self.federation.keeps_nothing(self.first_shared)

    def personal_state(self, client: int, kept: Params | None) -> Params:
        """What a client starts from: what was kept of it, or its first state."""
        return self.federation.personal_state(client, self.first_shared, kept)

    def ran_as(self, calibration: Calibration | None = None) -> str:
        """Which code runs the clients, and where, given what the run has found out."""
        if self.cluster is not None:
            return f"{self.backend.name} code on Ray"
        if calibration is None:
            return str(Choice(self.backend, 1 if self.calibrates else self.workers, self.block))
        return f"{Choice(self.backend, calibration.workers, self.block)} ({calibration})"

    def guarantee(self, rounds: int | None = None, releases: int | None = None) -> Guarantee | None:
        """What a private run guarantees its clients after so many rounds (all, by default); None for other runs."""
        return guarantee(self.federation, self.cohort, self.rounds if rounds is None else rounds, releases)

    def describe(self) -> dict[str, str]:
        """Every choice that decides the run's numbers, in words."""
        federation = self.federation
        words = {
            "version": version("fedtempo"),
            "seed": str(federation.problem.seed),
            "algorithm": repr(federation.algorithm),
            "start": self.start.words,
            "loss": ("the model's own, " if federation.problem.task.own else "") + federation.problem.task.name,
            "metrics": f"{federation.problem.task.metric} of {list(federation.problem.task.scores.values())}",
            "batching": repr(federation.problem.batching),
            "augment": repr(federation.problem.augment),
            "dtype": str(federation.problem.dtype) + (", autocast" if federation.problem.autocast else ""),
            "cohort": self.cohort.description,
            "rounds": str(self.rounds),
            "backend": self.backend.name,
            "block": str(self.block) if self.backend.name == vectorised.name else "any",
            "evaluation": repr(self.evaluation),
            "quorum": f"{self.quorum}, over-selection {self.over_selection}",
            "policy": repr(federation.policy),
        }
        # Only where there are some: a run without them is the same run as before there was a clock.
        if federation.problem.devices is not None:
            partial = ", partial work" if self.partial_work else ""
            words["devices"] = f"{federation.problem.devices.devices!r}, deadline {self.deadline}{partial}"
        if self.asynchrony is not None:
            words["asynchrony"] = repr(self.asynchrony)
        # A function prints with its address, which is another one in every process.
        return {name: re.sub(r" at 0x[0-9a-f]+", "", text) for name, text in words.items()}

    def identity(self, strict: bool = True) -> dict[str, str]:
        """What must be equal for a stored run to be continued: every choice, in words and by a hash of its content.

        The content is code and values: of the algorithm, the model, the data, the loss and the metrics. A part without
        a stable identity, such as a function that captures a list, is an error. Without `strict` its field says "not
        stable".
        """
        contents = {name: _content(part, name, strict) for name, part in self._parts()}
        # Weights are drawn from the seed, so the model's hash tells seeds apart. The architecture tells networks apart.
        return {**self.describe(), **contents, "architecture": _architecture(self.federation.problem.model)}

    def rough_identity(self) -> dict[str, str]:
        """The parts whose last bits depend on the processor, up to rounding."""
        return {name: _content(part, name, True, rough_identity_of) for name, part in self._parts() if name in COMPUTED}

    def _parts(self) -> Iterator[tuple[str, object]]:
        federation, problem = self.federation, self.federation.problem
        # Field by field, so that the error names the part that differs. Name and settings are in `describe` already.
        for part in fields(federation.algorithm):
            if part.name not in ("name", "settings"):
                yield f"algorithm.{part.name}{CONTENT}", getattr(federation.algorithm, part.name)
        yield "model", (problem.model, self.first_shared)
        yield "data", problem.data
        yield STARTS, (federation.common_start, federation.given_clients)
        yield f"loss{CONTENT}", problem.task
        yield f"augment{CONTENT}", problem.augment
        yield f"cohort{CONTENT}", self.cohort
        yield f"evaluation{CONTENT}", self.evaluation
        yield f"policy{CONTENT}", federation.policy
        if problem.devices is not None:
            yield f"devices{CONTENT}", problem.devices.devices.identity()


def _exactly(part: object, name: str) -> str:
    return identity_of(part, name)[:32]


def _architecture(model: nn.Module) -> str:
    """A short hash of the network's layers and of the shapes of its tensors."""
    tensors = [(name, tuple(t.shape)) for name, t in (*model.named_parameters(), *model.named_buffers())]
    return hashlib.sha256(repr((str(model), tensors)).encode()).hexdigest()[:8]


def _content(part: object, field: str, strict: bool, hashed: Callable[[object, str], str] = _exactly) -> str:
    try:
        return hashed(part, field.removesuffix(CONTENT))
    except Unstable as error:
        if not strict:
            return "not stable"
        raise ConfigError(f"out must be left out for a run that a new process could not recognise: {error}") from None
