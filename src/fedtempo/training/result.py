"""What a run leaves behind: the model, everybody's state, the history, and how a new user is served."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from fedtempo.backends import serial
from fedtempo.costs import Costs
from fedtempo.data.federated import FederatedData
from fedtempo.data.own_clients import ClientData
from fedtempo.display import html_of, show
from fedtempo.evaluation.protocol import Evaluation, Scores
from fedtempo.evaluation.serving import served_phases
from fedtempo.objectives import Received
from fedtempo.params import Params
from fedtempo.schedules import Now, Rate
from fedtempo.server.accounting import Guarantee
from fedtempo.training.experiment import Experiment
from fedtempo.training.round_report import RoundReport
from fedtempo.training.state import digest_of
from fedtempo.training.store import Store


class Table(Protocol):
    """A table of results: it prints, a notebook shows it, and `records` are its numbers."""

    def records(self) -> list[dict[str, Any]]:
        """One dict per row."""
        ...

    def __str__(self) -> str: ...


@dataclass
class Result:
    """A finished run."""

    experiment: Experiment
    params: Params
    server_state: Any
    history: list[RoundReport]
    store: Store
    now: Now
    ran_as: str
    """Which code ran the clients, and where; with what was measured to decide it."""
    releases: int = 0
    """Private means that somebody may have seen; more than rounds where a deployment had to repeat some."""

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
        """The parameters that are served: the last model, or FedExP's mean of the last two."""
        served = self.experiment.federation.algorithm.server.model(self.params, self.server_state)
        return {**self.params, **served}

    @property
    def never_heard(self) -> list[int]:
        """Clients that were asked and never sent anything that counted: always away, or always wrong."""
        failed = {failure.client for report in self.history for failure in report.failures}
        for report in self.history:
            if failed and not report.abandoned:
                failed.difference_update(report.clients)
        return sorted(failed)

    def client_state(self, client: int) -> Params:
        """A client's personal tensors; its derived first ones if it has not taken part yet."""
        kept = self.store.get(client)
        federation = self.experiment.federation
        return dict(kept) if kept is not None else federation.first_personal(client, self.experiment.first_shared)

    def digest(self) -> str:
        """A hash of the final state: shared model, server state and, client by client, hashes of personal tensors.

        That of a private run leaves the personal tensors out: a guess at a client's data could be checked against it.
        """
        state = hashlib.sha256()
        _absorb(state, "shared", self.params)
        _absorb(state, "server", self.server_state)
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
    ) -> PersonalModel:
        """The model a new user with these training rows would use.

        Split and personal methods serve as their algorithm says (a new head, proximal steps, an E-step); methods with
        one model fine-tune it, one epoch at the training rate unless told otherwise. `steps=0` leaves it as it is.
        """
        sizes = None if outputs is None else [outputs]
        federation = self.experiment.federation.on_data(FederatedData.from_clients([data], outputs=sizes))
        protocol = Evaluation(steps=steps, epochs=epochs, lr=lr)
        as_told = steps is not None or epochs is not None or lr is not None
        phases, as_kept = served_phases(federation, protocol, self.now, newcomers=not as_told)
        received = Received(self.model_params, federation.algorithm.server.extra(self.server_state))
        program = federation.compile(phases, as_kept=as_kept)
        personal = federation.first_personal(0, received.shared)
        (trained,) = serial.train(federation.problem, program, received, self.now, np.array([0]), [personal])
        return PersonalModel(trained.carry.shared, trained.carry.personal, _predictor(self.experiment))

    def table(self) -> Table:
        """Existing and new users: mean, bottom decile, spread, and what it cost."""
        table: Table = show(self, "table")
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
