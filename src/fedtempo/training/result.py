"""The result of a run: the model, the clients' states, the history, and the model that a new user gets."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
from torch import Tensor, nn

from fedtempo.backends import serial
from fedtempo.client.objectives import Received
from fedtempo.data.federated import FederatedData
from fedtempo.data.own_clients import ClientData
from fedtempo.errors import ConfigError, is_count, require
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.evaluation.serving import served_phases
from fedtempo.params import Params
from fedtempo.schedules import Now, Rate
from fedtempo.server.privacy_accounting import Guarantee
from fedtempo.support.display import html_of, show, shown_by
from fedtempo.tasks import SAMPLE_WEIGHT
from fedtempo.training.delivery import (
    Format,
    PersonalModel,
    example_batch,
    on_raw_rows,
    plain_module,
    predictor,
    preparation_notes,
    write_model,
)
from fedtempo.training.experiment import Experiment
from fedtempo.training.private_runs import WITHHELD
from fedtempo.training.remarks import remarks
from fedtempo.training.round_report import RoundReport, unheard
from fedtempo.training.saved import FinishedRun, SavedResult, Snapshot, Which, saved_from_bytes
from fedtempo.training.state import RECEIPT, absorb, digest_of
from fedtempo.training.storage.in_memory import Store

if TYPE_CHECKING:
    from fedtempo.support.table import ResultTable

shown_by("fedtempo.report")  # tables and pages need libraries that training does not


@dataclass
class Result(FinishedRun):
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

    @property
    def now(self) -> Now:
        """The position of the selected round, for schedules."""
        return self.at().now

    @property
    def notes(self) -> tuple[str, ...]:
        """What the run decided for you, and what looks wrong with it, a line each."""
        facts = (self.history, self.last.round, self.chosen.round if self.chosen else None, self.scores)
        return (*self.experiment.notes, *self.store.kinds.notes(), *remarks(self.experiment, *facts))

    @property
    def stopped_early(self) -> int | None:
        """The round, counted from 1, in which `Evaluation(patience=...)` ended the run; None if it ran to its end."""
        return len(self.history) if self.history and self.history[-1].stops else None

    @property
    def privacy(self) -> Guarantee | None:
        """What a private run guarantees its clients: epsilon, delta, adjacency, sampling; None for other runs."""
        # A run that may stop early is charged for all its rounds: when it stops depends on its models, and no theorem
        # promises the epsilon of a number of rounds that was chosen by looking at them.
        unseen = self.experiment.rounds - len(self.history)
        return self.experiment.guarantee(releases=self.releases + unseen if self.releases else None)

    def served(self, which: Which = "selected") -> Params:
        """The parameters that are served after the selected round, or after the last."""
        return {**self.at(which).shared, **self._mixed(which)}

    def _mixed(self, which: Which) -> Params:
        """What is served instead of the shared model's own tensors, where the algorithm serves a mean of several."""
        state = self.at(which)
        return self.experiment.federation.algorithm.server.model(state.shared, state.server)

    @property
    def never_heard(self) -> list[int]:
        """Clients that were asked and never sent an accepted upload."""
        return unheard(self.history)

    def participation(self) -> ResultTable:
        """Scores of existing users by how often they took part, and of new users."""
        table: ResultTable = show(self, "participation")
        return table

    def client_state(self, client: int, which: Which = "selected") -> Params:
        """A client's personal tensors after the selected round, or after the last; or its first ones."""
        clients = len(self.experiment.federation.problem.data)
        require(is_count(client, 0) and client < clients, "client", f"an int in [0, {clients})", client)
        kept = self.store.get(client, selected=self.at(which) is self.chosen)
        federation = self.experiment.federation
        return dict(federation.personal_state(client, self.experiment.first_shared, kept))

    def digest(self) -> str:
        """A hash of the *last* state: shared model, server state and, client by client, hashes of personal tensors.

        Two runs with equal digests computed the same numbers, whichever round validation selected. A private run's
        leaves the personal tensors out: a guess at a client's data could be checked against it.
        """
        state = hashlib.sha256()
        absorb(state, "shared", self.last.shared)
        absorb(state, "server", self.last.server)
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
        return PersonalModel(
            *self._served_to(data, steps, epochs, lr, outputs, which), predictor(self.experiment.federation)
        )

    def _served_to(
        self,
        data: ClientData,
        steps: Rate | None,
        epochs: Rate | None,
        lr: Rate | None,
        outputs: int | None,
        which: Which,
    ) -> tuple[Params, Params]:
        """The shared and the personal tensors that a new user is served with."""
        sizes = None if outputs is None else [outputs]
        rows = FederatedData.from_clients([data], outputs=sizes)
        rows.check_finite()
        needed = self.experiment.federation.problem.data.columns
        missing = sorted(name for name in needed if name not in rows.columns and name != SAMPLE_WEIGHT)
        rule = f"rows with the columns of the run, {', '.join(map(repr, needed))}"
        require(not missing, "data", rule, f"rows without {', '.join(map(repr, missing))}")
        require(len(next(iter(rows.columns.values()))) > 0, "data", "at least one row", "none")
        federation = self.experiment.federation.on_data(rows)
        protocol = Evaluation(steps=steps, epochs=epochs, lr=lr)
        state = self.at(which)
        phases, as_kept = served_phases(federation, protocol, newcomers=True)
        received = Received(self.served(which), federation.algorithm.server.extra(state.server))
        program = federation.compile(phases, as_kept=as_kept)
        personal = federation.first_personal(0, received.shared)
        (trained,) = serial.train(federation.problem, program, received, state.now, np.array([0]), [personal])
        return trained.carry.shared, trained.carry.personal

    def model(
        self,
        rows: ClientData | None = None,
        *,
        client: int | None = None,
        steps: Rate | None = None,
        epochs: Rate | None = None,
        lr: Rate | None = None,
        outputs: int | None = None,
        which: Which = "selected",
    ) -> nn.Module:
        """A plain module of your own class with the trained tensors in it: nothing of FedTempo, ready to pickle.

        Without arguments it is the shared model, with `client` that of one client, with `rows` that of a new user with
        these training rows, who is served as by `personalize`. It comes in evaluation mode, and can be trained further:
        outputs ask for gradients unless you compute them under `torch.no_grad()`.
        """
        require(rows is None or client is None, "client", "left out where rows are given", client)
        federation = self.experiment.federation
        if rows is not None:
            return plain_module(federation, *self._served_to(rows, steps, epochs, lr, outputs, which))
        for name, value in (("steps", steps), ("epochs", epochs), ("lr", lr), ("outputs", outputs)):
            require(value is None, name, "left out: only a new user, given by rows, is fine-tuned", value)
        return plain_module(federation, self.served(which), {} if client is None else self._state_of(client, which))

    def _state_of(self, client: int, which: Which) -> Params:
        state = self.client_state(client, which)
        if RECEIPT in state:
            raise ConfigError(f"client {client}'s tensors are on its node, where `fedtempo deploy export` writes them.")
        return state

    def predict(self, client: int, part: str = "test", which: Which = "selected") -> Tensor:
        """The outputs of a client's model on its own rows of a part, without fine-tuning, in the rows' order."""
        federation, personal = self.experiment.federation, self._state_of(client, which)
        rows = federation.problem.client_rows(client, part)
        with torch.no_grad():
            network = federation.problem.network
            return federation.algorithm.serving.predict(network, self.served(which), personal, rows, False)

    def save_model(
        self,
        path: str | Path,
        format: Format = "safetensors",
        *,
        client: int | None = None,
        which: Which = "selected",
        raw: bool = False,
    ) -> Path:
        """Write the shared model, or a client's, to a file that is read without FedTempo.

        `"safetensors"` holds the tensors; `"torch"` (for `torch.export.load`) and `"onnx"` also hold the computation.
        What was done to the rows before training (`data.preparation`) is in the file as JSON. With `raw` the
        computation does it too: the model then takes rows as the data file has them, in float64 with NaN for gaps.
        """
        require(not raw or format != "safetensors", "raw", "left out for safetensors, which holds no computation", raw)
        federation = self.experiment.federation
        whose = int(federation.problem.data.clients[0]) if client is None else client
        example = example_batch(federation.problem, whose)
        model = self.model(client=client, which=which)
        if raw:
            model, example = on_raw_rows(federation, model, whose)
        return write_model(model, example, Path(path), format, preparation_notes(federation))

    def save(self, path: str | Path) -> Path:
        """Write numbers and tensors to one file, which `ft.load_result` reads without the data, model and algorithm."""
        return self.saved().save(path)

    def saved(self) -> SavedResult:
        """What is left of the result without the experiment. A private run's personal tensors are left out."""
        identity, private = self.experiment.identity(strict=False), self.experiment.federation.private
        last = {} if private else {client: state for client, state in self.store.items() if state}
        selected = {} if self.chosen is None else {client: self.client_state(client) for client in last}
        return SavedResult(
            show(self, "summary"),
            {**identity, **({"data": WITHHELD} if private else {})},
            [replace(report, params={}, state=None) for report in self.history],
            self.last,
            self.chosen,
            {which: self._mixed(which) for which in get_args(Which)},
            last,
            {client: state for client, state in selected.items() if digest_of(state) != digest_of(last[client])},
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled, a result is what it is saved as: models and data need not be picklable."""
        return saved_from_bytes, (self.saved().to_bytes(),)

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
