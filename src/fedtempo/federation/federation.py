"""A federation: an algorithm on a problem. It says which tensors travel, what clients start from and what they send."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedtempo.algorithms.algorithm import Algorithm, begin_as_kept, displacement, keep_personal
from fedtempo.client.compression.packing import error_memory_in, first_error_memory
from fedtempo.client.network import tensors_of
from fedtempo.client.objectives import Received
from fedtempo.client.optimizer_state import GROUP, LAST_LOSS
from fedtempo.client.phase import Carry, Phase
from fedtempo.client.program import ClientProgram, compile_client
from fedtempo.data.federated import FederatedData
from fedtempo.errors import ConfigError, ModelError
from fedtempo.federation.device_rows import DeviceRows
from fedtempo.federation.first_draws import components_of, drawn_for, zero_names
from fedtempo.federation.problem import Problem
from fedtempo.federation.process_notes import ProcessNotes
from fedtempo.params import Params, chosen, select, squared_norm
from fedtempo.server.admission import Expected
from fedtempo.server.policy import UploadPolicy
from fedtempo.server.step import averaging, estimating
from fedtempo.server.sums import Groups


@dataclass(frozen=True)
class Federation:
    """The rules for clients: which tensors travel, what a client starts from, what it sends. Constant during a run."""

    problem: Problem
    algorithm: Algorithm
    common_start: Params | None = None
    """Personal tensors that every client starts from; None draws each client's own."""
    given_clients: dict[int, Params] | None = None
    """First personal tensors of particular clients."""
    policy: UploadPolicy | None = None
    """The rules that need every upload by itself; None where only finiteness is checked."""

    @cached_property
    def program(self) -> ClientProgram:
        """What a client does in a training round."""
        return self.compile(self.algorithm.phases, uploads=True)

    def compile(self, phases: tuple[Phase, ...], uploads: bool = False, as_kept: bool = False) -> ClientProgram:
        """A client program from phases.

        Training has `uploads`; serving a new user and fine-tuning have none. Fine-tuning starts `as_kept`: from the
        state that the client holds, without what the algorithm does to it at the start of a round.
        """
        memory, rules = self.algorithm.memory, self.algorithm.uploads
        upload = self._upload if uploads else _no_upload
        begin = begin_as_kept if as_kept else memory.begin
        network, task = self.problem.network, self.problem.task
        subtracts = not uploads or (rules.upload is displacement and not rules.sends_norm)
        elementwise = subtracts and memory.final_state is keep_personal and begin is begin_as_kept
        return compile_client(phases, network, task, upload, memory.final_state, begin, uploads, elementwise)

    @cached_property
    def notes(self) -> ProcessNotes:
        """What this process has found out about the run."""
        return ProcessNotes()

    # ------------------------------------------------------------------ which tensors travel

    @property
    def private(self) -> bool:
        """Whether uploads are noised, so that nothing else about clients may be published."""
        return self.policy is not None and self.policy.aggregator.private

    @property
    def checks_uploads(self) -> bool:
        """Whether an upload that cannot be added up is refused: yes, unless `admission.checks` says no."""
        return self.policy is None or self.policy.admission.checks

    @cached_property
    def personal_names(self) -> frozenset[str]:
        """The model's tensors that never leave a client."""
        selector = self.algorithm.personal
        names = chosen(self.problem.model, selector)
        if not names and not selector.optional:
            raise ConfigError(f"the personal selector must match some tensors. Got {selector!r}, which matches none.")
        if names and names >= set(self.problem.network.parameters):
            raise ConfigError(
                f"the personal selector must leave something to share. Got {selector!r}, which matches all."
            )
        return names

    @cached_property
    def trained_names(self) -> frozenset[str]:
        """The shared parameters that training moves, and so the ones that are sent up."""
        if self.algorithm.uploads.nothing:
            return frozenset()
        stages = (stage for stage in self.program.stages if not stage.phase.own)
        return frozenset[str]().union(*(stage.trained for stage in stages)) - self.personal_names

    @cached_property
    def stepped_names(self) -> frozenset[str]:
        """The shared parameters that the server's step is given: the trained ones, and those that it alone moves."""
        return self.trained_names | chosen(self.problem.model, self.algorithm.server.moves)

    @cached_property
    def moving_names(self) -> frozenset[str]:
        """The shared tensors that a round can change: these are sent down every round, the others once at the start."""
        if self.algorithm.uploads.nothing:
            return frozenset()
        return self.stepped_names | self._averaged_buffers

    @cached_property
    def _averaged_buffers(self) -> frozenset[str]:
        buffers = dict(self.problem.model.named_buffers())
        return frozenset(n for n, b in buffers.items() if b.is_floating_point()) - self.personal_names

    def _upload(self, received: Received, carry: Carry) -> Groups:
        """The algorithm's upload, cut down to what the server may know: trained parameters and shared buffers."""
        rules = self.algorithm.uploads
        if rules.nothing:
            return {}
        # A displacement is one of parameters; how far statistics moved is a group of its own. Masks and counters have
        # no displacement at all: torch cannot even subtract truth values.
        start = {n: t for n, t in received.shared.items() if t.is_floating_point()}
        still = select(start, self.problem.network.buffers)
        end = {**select(carry.shared, start), **still}
        groups = rules.upload(received._replace(shared=start), carry._replace(shared=end))
        # The algorithm may compute with all tensors. Only here is it decided what leaves the client.
        delta = select(groups["delta"], self.trained_names)
        sent = {**groups, "delta": delta}
        if rules.sends_norm:
            sent["squared_norm"] = {"delta": squared_norm({n: d.to(torch.float64) for n, d in delta.items()})}
        buffers = {
            n: carry.shared[n] - received.shared[n] for n in self.problem.network.buffers if n in self._averaged_buffers
        }
        return {**sent, "buffers": buffers} if buffers else sent

    @cached_property
    def expected(self) -> Expected:
        """Shape and type of every tensor that an upload must have, from the server's own model."""
        # An upload of zero steps has the form of every other upload, and needs no data.
        shared = self.first_shared()
        received = Received(shared, self.first_extra(shared))
        carry = self.program.init(received, self._first_own(int(self.problem.data.clients[0]), shared))
        groups, _, _ = self.program.finish(received, carry)
        return {group: {n: (t.shape, t.dtype) for n, t in tensors.items()} for group, tensors in groups.items()}

    def first_extra(self, shared: Params) -> Params:
        """What the server sends down beside this model in the first round, such as SCAFFOLD's control variate."""
        server = self.algorithm.server
        return server.extra(server.init(select(shared, self.stepped_names)))

    def weight(self, client: int, processed: int) -> float:
        """How much a client's upload counts."""
        return float(self.weights(np.array([client]), np.array([processed]))[0])

    def weights(self, clients: np.ndarray, processed: np.ndarray | int) -> np.ndarray:
        """How much each client's upload counts; `processed` is how many samples it trained shared tensors on."""
        if self.algorithm.weighting == "uniform":
            return np.ones(len(clients))
        by_samples = self.algorithm.weighting == "samples"
        return np.full(len(clients), self.problem.sizes[clients] if by_samples else processed, dtype=np.float64)

    # ------------------------------------------------------------------ what clients start from

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
            tensors[name] = value.detach().clone().to(device=self.problem.device, dtype=tensors[name].dtype)
        tensors = self.algorithm.first_model(self.problem.model, tensors)
        return {n: t for n, t in tensors.items() if n not in self.personal_names}

    def _first_tensors(self) -> Params:
        problem = self.problem
        first = tensors_of(problem.model, problem.dtype, problem.device)
        if self.algorithm.components is None:
            return first
        return components_of(problem, first, self.algorithm.components)

    def first_personal(self, client: int, shared: Params) -> Params:
        """What a client keeps before its first round; for a newcomer, `shared` is the trained model."""
        return {**self._first_own(client, shared), **self.first_error_memory}

    @cached_property
    def first_error_memory(self) -> Params:
        """What a client remembers of errors of compression before its first upload."""
        rules = self.algorithm.uploads
        if rules.compress is None or rules.nothing:
            return {}
        memory: Params = {}
        for group, forms in self.expected.items():
            if group in rules.compresses:
                memory.update(first_error_memory(rules.compress, group, forms))
        return memory

    def kept_after(self, personal: Params) -> Params:
        """What of a client's state is stored after a round: of a stateless algorithm, the errors of compression."""
        return error_memory_in(personal) if self.algorithm.memory.stateless else personal

    def personal_state(self, client: int, shared: Params, kept: Params | None) -> Params:
        """What a client starts from: what was stored of it, or its first state."""
        if kept is None:
            return self.first_personal(client, shared)
        # A store on a disk gives tensors of the CPU. What is read there anyway stays there.
        if self.problem.device != "cpu":
            on_host = {*error_memory_in(kept), LAST_LOSS}
            kept = {name: t if name in on_host else t.to(self.problem.device) for name, t in kept.items()}
        only_memory = self.algorithm.memory.stateless and error_memory_in(kept)
        return {**self._first_own(client, shared), **kept} if only_memory else kept

    def _first_own(self, client: int, shared: Params) -> Params:
        given = (self.given_clients or {}).get(client)
        own = {**self._fresh(client), **self._initial(shared)}
        if self.algorithm.memory.numbered:
            own["number"] = torch.tensor(client)
        for name, value in (given or {}).items():
            if name not in own:
                raise ConfigError(f"init_clients[{client}] must name personal tensors. Got {name!r}.")
            own[name] = value.detach().clone().to(dtype=own[name].dtype)
        # An algorithm makes flags and counters as plain tensors, without asking where the model is.
        own = {n: v.to(self.problem.device) if isinstance(v, Tensor) else v for n, v in own.items()}
        optimizers, _ = self.program.first_states(shared, own)
        loss = {LAST_LOSS: torch.zeros((), dtype=torch.float64)} if self.problem.keeps_loss else {}
        return {**own, **optimizers, **loss}

    def _initial(self, shared: Params) -> Params:
        """What the algorithm lets a client keep. A copy of the model leaves out frozen tensors, to save memory."""
        memory = self.algorithm.memory
        names = self.trained_names if memory.of is None else chosen(self.problem.model, memory.of)
        initial = memory.initial_state(shared, names)
        # A name such as `previous/0/weight` ends with the tensor of the model that it is a copy of.
        return {n: t for n, t in initial.items() if n.rsplit("/", 1)[-1] not in self.problem.network.frozen}

    def keeps_nothing(self, shared: Params) -> bool:
        """Whether no client has anything of its own from one round to the next."""
        initial = self._initial(shared)
        kept = (
            self.given_clients or self.personal_names or initial or self.first_error_memory or self.problem.keeps_loss
        )
        if kept or self.algorithm.memory.numbered:
            return False
        return not self.program.first_states(shared, initial)[0]

    def _fresh(self, client: int) -> Params:
        """The client's personal tensors of the model, drawn for it or the common ones that were given."""
        if not self.personal_names:
            return {}
        outputs = self.problem.data.outputs
        drawn = drawn_for(self.problem, self.personal_names, client, None if outputs is None else int(outputs[client]))
        drawn = {n: torch.zeros_like(t) if n in self._zeros else t for n, t in drawn.items()}
        common = {**self._frozen, **(self.common_start or {})}
        return {n: common[n] if n in common and common[n].shape == t.shape else t for n, t in drawn.items()}

    @cached_property
    def _frozen(self) -> Params:
        problem = self.problem
        return select(tensors_of(problem.model, problem.dtype, problem.device), problem.network.frozen)

    @cached_property
    def _zeros(self) -> frozenset[str]:
        return zero_names(self.problem.model)

    def with_averaged_optimizers(self, shared: Params) -> Federation:
        """The same federation, whose server also averages optimizer states where clients use `state="average"`."""
        if all(phase.optimizer.state != "average" for phase in self.algorithm.phases) or self.algorithm.uploads.nothing:
            return self
        own = self.first_personal(int(self.problem.data.clients[0]), shared)
        _, averaged = self.program.first_states(shared, own)
        return replace(
            self, algorithm=replace(self.algorithm, server=averaging(self.algorithm.server, GROUP, averaged))
        )

    def with_estimates(self) -> Federation:
        """The same federation, whose server keeps the mean of what clients have sent so far where they use EF21."""
        rules = self.algorithm.uploads
        if rules.compress is None or rules.compress.feedback != "ef21":
            return self
        by_samples = self.algorithm.weighting == "samples"
        return replace(self, algorithm=replace(self.algorithm, server=estimating(self.algorithm.server, by_samples)))

    def on_data(self, data: FederatedData) -> Federation:
        """The same rules for other clients' data, such as a new user's."""
        # The copy on an accelerator is one of the old rows.
        problem = replace(self.problem, data=data, device_rows=DeviceRows())
        return replace(self, problem=problem, given_clients=None)


def _no_upload(received: Received, carry: Carry) -> Groups:
    return {}
