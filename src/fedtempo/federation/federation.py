"""A federation: an algorithm bound to a model, data and a seed. What backends run, and nothing that changes."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import nn

from fedtempo.algorithms.algorithm import Algorithm, begin_as_kept
from fedtempo.client.network import Network, tensors_of
from fedtempo.client.program import Carry, ClientProgram, Phase, compile_client
from fedtempo.data.batches import Batching
from fedtempo.data.federated import FederatedData
from fedtempo.errors import ConfigError, ModelError
from fedtempo.models.weights import redraw, seeded
from fedtempo.objectives import Received
from fedtempo.params import Params, select, squared_norm
from fedtempo.schedules import Now
from fedtempo.server.admission import Expected
from fedtempo.server.policy import Scrutiny
from fedtempo.server.sums import Groups
from fedtempo.tasks import Batch, Task


@dataclass(frozen=True)
class Federation:
    """Everything that stays the same during a run."""

    model: nn.Module
    data: FederatedData
    algorithm: Algorithm
    task: Task
    batching: Batching
    seed: int
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    common_start: Params | None = None
    """Personal tensors that every client starts from; None draws each client's own."""
    given_clients: dict[int, Params] | None = None
    """First personal tensors of particular clients."""
    draws_masks: bool = False
    """Whether training the model needs dropout keys."""
    scrutiny: Scrutiny | None = None
    """How uploads are looked at one by one; None where finiteness is all that is checked."""
    pads_batches: bool = True
    """Whether batches of different lengths may be padded: rows do not influence each other."""

    @cached_property
    def network(self) -> Network:
        """The model as a pure function."""
        network = Network(self.model.to(dtype=self.dtype, device=self.device))
        network.dropout = network.dropout or self.draws_masks
        return network

    @cached_property
    def program(self) -> ClientProgram:
        """What a client does in a training round."""
        return self.compile(self.algorithm.phases, uploads=True)

    def compile(self, phases: tuple[Phase, ...], uploads: bool = False, as_kept: bool = False) -> ClientProgram:
        """A client program from phases; without uploads for newcomers, from the state as kept for fine-tuning."""
        algorithm = self.algorithm
        upload = self._upload if uploads else _no_upload
        begin = begin_as_kept if as_kept else algorithm.begin
        return compile_client(phases, self.network, self.task, upload, algorithm.keep, begin)

    @property
    def private(self) -> bool:
        """Whether uploads are noised, so that nothing else about clients may be published."""
        return self.scrutiny is not None and self.scrutiny.aggregator.private

    @cached_property
    def personal_names(self) -> frozenset[str]:
        """The model's tensors that never leave a client."""
        selector = self.algorithm.personal
        names = selector.names(self.model)
        if not names and not selector.optional:
            raise ConfigError(f"the personal selector must match some tensors. Got {selector!r}, which matches none.")
        if names and names >= set(self.network.parameters):
            raise ConfigError(
                f"the personal selector must leave something to share. Got {selector!r}, which matches all."
            )
        return names

    @cached_property
    def trained_names(self) -> frozenset[str]:
        """The shared parameters that training moves, and so the ones that are sent up."""
        if not self.algorithm.shares:
            return frozenset()
        return frozenset[str]().union(*(s.trained for s in self.program.stages)) - self.personal_names

    def _upload(self, received: Received, carry: Carry) -> Groups:
        """The algorithm's upload, cut down to what the server may know: trained parameters and shared buffers."""
        if not self.algorithm.shares:
            return {}
        groups = self.algorithm.upload(received, carry)
        delta = select(groups["delta"], self.trained_names)
        sent = {**groups, "delta": delta}
        if self.algorithm.sends_norm:
            sent["squared_norm"] = {"delta": squared_norm({n: d.to(torch.float64) for n, d in delta.items()})}
        buffers = {
            n: carry.shared[n] - received.shared[n]
            for n in self.network.buffers
            if n in carry.shared and carry.shared[n].is_floating_point()
        }
        return {**sent, "buffers": buffers} if buffers and self.algorithm.average_buffers else sent

    @cached_property
    def expected(self) -> Expected:
        """Shape and type of every tensor that an upload must have, from the server's own model."""
        shared = self.first_shared()
        server = self.algorithm.server
        extra = server.extra(server.init(select(shared, self.trained_names)))
        received = Received(shared, extra)
        carry = self.program.init(received, self.first_personal(int(self.data.clients[0]), shared))
        groups, _, _ = self.program.finish(received, carry)
        return {group: {n: (t.shape, t.dtype) for n, t in tensors.items()} for group, tensors in groups.items()}

    # ------------------------------------------------------------------ first values

    def first_shared(self, given: Params | None = None) -> Params:
        """The shared model of round 0: the model's tensors, replaced by any that are given."""
        tensors = self._first_tensors()
        unknown = set(given or {}) - set(tensors)
        if unknown:
            raise ModelError(f"init must have the model's tensor names. Got {sorted(unknown)[0]!r}.")
        for name, value in (given or {}).items():
            if value.shape != tensors[name].shape and name not in self.personal_names:
                raise ModelError(
                    f"init[{name!r}] must have shape {tuple(tensors[name].shape)}. Got {tuple(value.shape)}."
                )
            tensors[name] = value.detach().clone().to(device=self.device, dtype=tensors[name].dtype)
        return {n: t for n, t in tensors.items() if n not in self.personal_names}

    def _first_tensors(self) -> Params:
        first = tensors_of(self.model, self.dtype, self.device)
        if self.algorithm.components is None:
            return first
        parts = [first]
        for index in range(1, self.algorithm.components):
            with seeded(self.seed, "component", index):
                other = copy.deepcopy(self.model)
                redraw(other)
                parts.append(tensors_of(other, self.dtype, self.device))
        return {name: torch.stack([part[name] for part in parts]) for name in first}

    def first_personal(self, client: int, shared: Params, newcomer: bool = False) -> Params:
        """What a client keeps before its first round; `shared` is the run's first model, or the trained one."""
        given = (self.given_clients or {}).get(client)
        memory = self.algorithm.welcome if newcomer and self.algorithm.welcome else self.algorithm.remember
        own = {**self._fresh(client), **memory(shared, self.trained_names)}
        for name, value in (given or {}).items():
            if name not in own:
                raise ConfigError(f"init_clients[{client}] must name personal tensors. Got {name!r}.")
            own[name] = value.detach().clone().to(device=self.device, dtype=own[name].dtype)
        return own

    def keeps_nothing(self, shared: Params) -> bool:
        """Whether no client has anything of its own from one round to the next."""
        return not (self.given_clients or self.personal_names or self.algorithm.remember(shared, self.trained_names))

    def _fresh(self, client: int) -> Params:
        if not self.personal_names:
            return {}
        outputs = None if self.data.outputs is None else int(self.data.outputs[client])
        drawn = self._drawn(client, outputs)
        common = self.common_start or {}
        return {n: common[n] if n in common and common[n].shape == t.shape else t for n, t in drawn.items()}

    def _drawn(self, client: int, outputs: int | None) -> Params:
        template = copy.deepcopy(self.model)
        if outputs is not None:
            resize_head(template, outputs)
        with seeded(self.seed, "personal", client):
            for prefix, layer in template.named_modules():
                reset = getattr(layer, "reset_parameters", None)
                mine = any(_join(prefix, leaf) in self.personal_names for leaf in (*layer._parameters, *layer._buffers))
                if mine and callable(reset):
                    reset()
        return select(tensors_of(template, self.dtype, self.device), self.personal_names)

    # ------------------------------------------------------------------ data

    @cached_property
    def sizes(self) -> np.ndarray:
        """Training rows of every client."""
        return self.data.sizes("train")

    @cached_property
    def total_samples(self) -> int:
        """Training rows of all training clients together."""
        return int(self.sizes[self.data.clients].sum())

    def rows(self, clients: np.ndarray, local: np.ndarray, part: str = "train") -> Batch:
        """Rows of clients by their number inside the client; `local` has shape (clients, rows)."""
        index = {"train": 0, "validation": 1, "test": 2}[part]
        positions = self.data.bounds[clients, index][:, None] + local
        where = positions if self.data.order is None else self.data.order[positions]
        return self.to_device(self.data.take(where, self.dtype))

    def client_rows(self, client: int, part: str = "train") -> Batch:
        """All rows of one client."""
        return self.to_device(self.data.client(client, part, self.dtype))

    def to_device(self, batch: Batch) -> Batch:
        """The batch where the model is."""
        return batch if self.device == "cpu" else {n: t.to(self.device) for n, t in batch.items()}

    def weight(self, client: int, processed: int) -> float:
        """How much a client's upload counts."""
        if self.algorithm.weighting == "uniform":
            return 1.0
        return float(self.sizes[client] if self.algorithm.weighting == "samples" else processed)

    def now(self, round_number: int, cohort: float, loss_ratio: float = 1.0, plateaus: int = 0) -> Now:
        """Where a round stands."""
        clients = self.data.clients
        return Now(
            round=round_number,
            clients=len(clients),
            cohort=cohort,
            total_samples=self.total_samples,
            loss_ratio=loss_ratio,
            plateaus=plateaus,
        )

    def over(self, data: FederatedData) -> Federation:
        """The same federation on other clients' data, such as a new user's."""
        return replace(self, data=data, given_clients=None)


def resize_head(model: nn.Module, outputs: int) -> None:
    """Give the model's last linear layer this many outputs, for clients with their own classes."""
    last = [m for m in getattr(model, "head", model).modules() if isinstance(m, nn.Linear)]
    if not last:
        raise ModelError("heads of different sizes need a linear layer in model.head. Got none.")
    layer = last[-1]
    layer.out_features = outputs
    layer.weight = nn.Parameter(layer.weight.new_empty(outputs, layer.in_features))
    if layer.bias is not None:
        layer.bias = nn.Parameter(layer.bias.new_empty(outputs))


def _no_upload(received: Received, carry: Carry) -> Groups:
    return {}


def _join(prefix: str, leaf: str) -> str:
    return f"{prefix}.{leaf}" if prefix else leaf
