"""What a run leaves behind: the model, everybody's state, the history, and how a new user is served."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
import torch
from torch import Tensor, nn

from fedtempo.backends import serial
from fedtempo.costs import Costs
from fedtempo.data.federated import FederatedData
from fedtempo.data.own_clients import ClientData
from fedtempo.display import html_of, show
from fedtempo.errors import require
from fedtempo.evaluation.protocol import Evaluation, Scores
from fedtempo.evaluation.serving import fine_tuning_in_words, harm, served_phases
from fedtempo.objectives import Received
from fedtempo.params import Params
from fedtempo.schedules import Now, Rate
from fedtempo.server.accounting import Guarantee
from fedtempo.training.experiment import Experiment
from fedtempo.training.round_report import RoundReport
from fedtempo.training.state import digest_of
from fedtempo.training.store import Store


class ShownTable(Protocol):
    """A table of results: it prints, a notebook shows it, and `records` are its numbers."""

    def records(self) -> list[dict[str, Any]]:
        """One dict per row."""
        ...

    def __str__(self) -> str: ...


Which = Literal["selected", "last"]
"""The round that validation selected (the last one where there is no validation), or the last."""


class Snapshot(NamedTuple):
    """The run after one of its rounds."""

    round: int
    shared: Params
    server: Any
    now: Now
    """Where that round stood; its rates are those of fine-tuning."""


@dataclass
class Result:
    """A finished run. The model it hands out is that of the round whose scores it reports."""

    experiment: Experiment
    last: Snapshot
    history: list[RoundReport]
    store: Store
    ran_as: str
    """Which code ran the clients, and where; with what was measured to decide it."""
    chosen: Snapshot | None = None
    """The round that validation selected; None if it selected none, and then the last one counts."""
    releases: int = 0
    """Private means that somebody may have seen; more than rounds where a deployment had to repeat some."""

    def at(self, which: Which = "selected") -> Snapshot:
        """The run after the selected round, or after the last."""
        require(which in get_args(Which), "which", " or ".join(map(repr, get_args(Which))), which)
        return self.chosen if self.chosen is not None and which == "selected" else self.last

    @property
    def params(self) -> Params:
        """The shared model of the selected round; `result.at("last").shared` is that of the last."""
        return self.at().shared

    @property
    def server_state(self) -> Any:
        """The server's state after the selected round."""
        return self.at().server

    @property
    def now(self) -> Now:
        """Where the selected round stood."""
        return self.at().now

    @property
    def notes(self) -> tuple[str, ...]:
        """What the run decided for you, and what looks wrong with it, a line each."""
        return (*self.experiment.notes, *self._remarks())

    def _remarks(self) -> Iterator[str]:
        last = self.last.round + 1
        if self.chosen is not None:
            yield f"model: round {self.chosen.round + 1} of {last}, selected by validation"
        else:
            yield f"model: the last round, {last}"
        protocol = self.experiment.evaluation
        if protocol is not None:
            yield f"fine-tuning: {fine_tuning_in_words(self.experiment.federation, protocol)}"
        if self.scores is not None and harm(self.scores) is not None:
            before, after = harm(self.scores) or (0.0, 0.0)
            yield (
                f"warning: fine-tuning made existing users worse ({self.scores.metric} {before:.3g} to {after:.3g}). "
                "Give it a rate of its own: Evaluation(lr=...)"
            )

    @property
    def privacy(self) -> Guarantee | None:
        """What a private run guarantees its clients: epsilon, delta, adjacency, sampling; None for other runs."""
        return self.experiment.guarantee(len(self.history), self.releases or None)

    @property
    def seconds(self) -> float:
        """What all rounds took, those before an interruption too."""
        return sum(report.seconds for report in self.history)

    @property
    def costs(self) -> Costs:
        """What the whole run cost."""
        return self.history[-1].total_costs if self.history else Costs()

    @property
    def selected(self) -> RoundReport | None:
        """The round whose test scores count: the last one that validation selected."""
        evaluated = [report for report in self.history if report.test is not None]
        return evaluated[-1] if evaluated else None

    @property
    def scores(self) -> Scores | None:
        """The test scores of the selected round."""
        return self.selected.test if self.selected else None

    @property
    def model_params(self) -> Params:
        """The parameters that are served: the selected round's model, or FedExP's mean of two."""
        return self.served()

    def served(self, which: Which = "selected") -> Params:
        """The parameters that are served after the selected round, or after the last."""
        state = self.at(which)
        return {**state.shared, **self.experiment.federation.algorithm.server.model(state.shared, state.server)}

    @property
    def never_heard(self) -> list[int]:
        """Clients that were asked and never sent anything that counted: always away, or always wrong."""
        failed = {failure.client for report in self.history for failure in report.failures}
        for report in self.history:
            if failed and not report.abandoned:
                failed.difference_update(report.clients)
        return sorted(failed)

    def client_state(self, client: int, which: Which = "selected") -> Params:
        """A client's personal tensors after the selected round, or after the last; or its first ones."""
        kept = self.store.get(client, selected=self.at(which) is self.chosen)
        federation = self.experiment.federation
        return dict(kept) if kept is not None else federation.first_personal(client, self.experiment.first_shared)

    def digest(self) -> str:
        """A hash of the *last* state: shared model, server state and, client by client, hashes of personal tensors.

        Two runs with equal digests computed the same numbers, whichever round validation selected. A private run's
        leaves the personal tensors out: a guess at a client's data could be checked against it.
        """
        state = hashlib.sha256()
        _absorb(state, "shared", self.last.shared)
        _absorb(state, "server", self.last.server)
        if self.experiment.federation.private:
            return state.hexdigest()
        for client, tensors in self.store.items():
            state.update(f"client {client} {digest_of(tensors).hex()}\n".encode())
        return state.hexdigest()

    def personalize(
        self,
        data: ClientData,
        *,
        steps: Rate | None = None,
        epochs: Rate | None = None,
        lr: Rate | None = None,
        outputs: int | None = None,
        which: Which = "selected",
    ) -> PersonalModel:
        """The model a new user with these training rows would use.

        Split and personal methods serve as their algorithm says (a new head, proximal steps, an E-step); methods with
        one model fine-tune it by their own local steps, for one epoch. `steps`, `epochs` and `lr` set the length and
        the rate of either; `steps=0` leaves the model as it is. `which` is the round whose model is used: the one that
        validation selected, or the `"last"`.
        """
        sizes = None if outputs is None else [outputs]
        federation = self.experiment.federation.on_data(FederatedData.from_clients([data], outputs=sizes))
        protocol = Evaluation(steps=steps, epochs=epochs, lr=lr)
        state = self.at(which)
        phases, as_kept = served_phases(federation, protocol, state.now, newcomers=True)
        received = Received(self.served(which), federation.algorithm.server.extra(state.server))
        program = federation.compile(phases, as_kept=as_kept)
        personal = federation.first_personal(0, received.shared)
        (trained,) = serial.train(federation.problem, program, received, state.now, np.array([0]), [personal])
        return PersonalModel(trained.carry.shared, trained.carry.personal, _predictor(self.experiment))

    def table(self) -> ShownTable:
        """Existing and new users: mean, bottom decile, spread, and what it cost."""
        table: ShownTable = show(self, "table")
        return table

    def report(self, path: str | Path) -> Path:
        """Write a self-contained HTML page about the run."""
        written: Path = show(self, "page", Path(path))
        return written

    def export(self, folder: str | Path) -> None:
        """Write metrics, summary and report page into a run folder."""
        show(self, "folder", Path(folder))

    def __repr__(self) -> str:
        private = "" if self.privacy is None else f", {self.privacy}"
        algorithm = self.experiment.federation.algorithm
        return f"Result({algorithm!r}, {len(self.history)} rounds, digest {self.digest()[:12]}{private})"

    def _repr_html_(self) -> str:
        return html_of(self)


class PersonalModel(nn.Module):
    """One user's model: call it on inputs to get outputs."""

    def __init__(
        self, shared: Params, personal: Params, predict: Callable[[Params, Params, dict[str, Tensor]], Tensor]
    ) -> None:
        super().__init__()
        self.shared = shared
        self.personal = personal
        self._predict = predict

    def forward(self, x: Tensor | None = None, **inputs: Tensor) -> Tensor:
        """Outputs for one input by position or several by name."""
        given = {"x": x, **inputs} if x is not None else inputs
        like = next(p for p in (*self.shared.values(), *self.personal.values()) if p.is_floating_point())
        batch = {name: _as_input(value, like) for name, value in given.items()}
        with torch.no_grad():
            return self._predict(self.shared, self.personal, batch)


def _as_input(value: Any, like: Tensor) -> Tensor:
    """An array or tensor where the model is; floating-point numbers in the model's type."""
    tensor = torch.as_tensor(value, device=like.device)
    return tensor.to(like.dtype) if tensor.is_floating_point() else tensor


def _predictor(experiment: Experiment) -> Callable[[Params, Params, dict[str, Tensor]], Tensor]:
    federation = experiment.federation
    return lambda shared, personal, batch: federation.algorithm.serving.predict(
        federation.problem.network, shared, personal, batch, False
    )


def _absorb(state: Any, name: str, tree: Any) -> None:
    if isinstance(tree, Mapping):
        for key in sorted(tree):
            _absorb(state, f"{name}/{key}", tree[key])
    elif isinstance(tree, (tuple, list)):
        for index, part in enumerate(tree):
            _absorb(state, f"{name}/{index}", part)
    elif isinstance(tree, Tensor):
        array = tree.detach().cpu().contiguous()
        state.update(f"{name} {array.dtype} {tuple(array.shape)}\n".encode())
        state.update(array.numpy().tobytes())
