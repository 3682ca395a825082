"""An algorithm is a frozen value: what clients do, what the server does, what stays personal."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from torch import Tensor, nn

from fedtempo.client.compression.compressor import Compressor
from fedtempo.client.network import Network
from fedtempo.client.objectives import Received
from fedtempo.client.phase import Carry, Phase, Where
from fedtempo.client.program import Begin, FinalState, Upload
from fedtempo.client.transforms import Transform, is_identity, sgd
from fedtempo.errors import ConfigError, require
from fedtempo.params import Params, Selector, combine, nothing, subtract
from fedtempo.server.step import Server, descend
from fedtempo.server.sums import Groups
from fedtempo.tasks import Batch

Weighting = Literal["uniform", "samples", "processed"]
"""How much a client counts in the mean: all alike, by its training rows, or by the rows that it trained on."""
Predict = Callable[[Network, Params, Params, Batch, bool], Tensor]
"""(network, shared tensors, personal tensors, batch, whether in training mode) -> outputs of a user's model."""
InitialState = Callable[[Params, frozenset[str]], Params]
"""(shared tensors, names of the trained ones, or of those that `Memory.of` selects) -> what a client keeps."""
FirstModel = Callable[[nn.Module, Params], Params]
"""(model, its first tensors) -> the first tensors to train from."""


def first_as_drawn(model: nn.Module, tensors: Params) -> Params:
    """The usual first model: the one that was given or drawn."""
    return tensors


def displacement(received: Received, carry: Carry) -> Groups:
    """The usual upload: how far the shared tensors moved, Delta_i = y_i - x."""
    return {"delta": subtract(carry.shared, received.shared)}


def keep_personal(received: Received, carry: Carry) -> Params:
    """The usual memory: the personal tensors as they are after the round."""
    return carry.personal


def begin_as_kept(received: Received, personal: Params) -> tuple[Params, Params]:
    """The usual start of a round: personal tensors as they were kept, and an empty scratch."""
    return personal, {}


def predict_together(network: Network, shared: Params, personal: Params, batch: Batch, train: bool = False) -> Tensor:
    """The model made of shared and personal tensors."""
    return network.forward(combine(shared, personal), batch, train)


def predict_shared(network: Network, shared: Params, personal: Params, batch: Batch, train: bool = False) -> Tensor:
    """The shared model; what the client keeps is not part of it."""
    return network.forward(shared, batch, train)


def predict_personal(network: Network, shared: Params, personal: Params, batch: Batch, train: bool = False) -> Tensor:
    """The client's own model; frozen tensors, which it does not keep, come from the shared model."""
    return network.forward(combine(shared, personal), batch, train)


def full_copy(shared: Params, trained: frozenset[str]) -> Params:
    """A whole model for the client, equal to the shared model at first (Ditto, pFedMe, local training)."""
    return dict(shared)


def keep_nothing(shared: Params, trained: frozenset[str]) -> Params:
    """Nothing to keep beyond the personal tensors."""
    return {}


@dataclass(frozen=True)
class Memory:
    """What a client keeps from one round to the next, besides the model's personal tensors."""

    initial_state: InitialState = keep_nothing
    """Made at the client's first visit, from the run's first shared model; for a newcomer, from the trained one."""
    begin: Begin = begin_as_kept
    """How a round starts: the personal state to train from, and notes for the round."""
    final_state: FinalState = keep_personal
    """What is kept after the round."""
    stateless: bool = False
    """Whether personal tensors start afresh each round (FedRecon)."""
    of: Selector | None = None
    """The tensors whose names `initial_state` is given; None gives it those of the trained ones."""
    apart: bool = False
    """Whether what `initial_state` makes is no part of any model, so that a head may be personal as well."""
    numbered: bool = False
    """Whether a client also keeps its number, as `number` (AFL)."""
    absent_train: bool | Literal["own"] = False
    """Whether clients outside the cohort train as well, for what they keep; they send nothing (pFedMe's code). "own"
    has them take the steps of phases for tensors of their own alone (`Phase.own`; FedALA's code)."""

    @property
    def is_apart(self) -> bool:
        """Whether a client keeps no part of a model besides the personal tensors."""
        return self.apart or self.initial_state is keep_nothing


@dataclass(frozen=True)
class Uploads:
    """What a client sends."""

    upload: Upload = displacement
    """From what came down and the carry after training to tensors by group; the server averages each group."""
    unweighted: frozenset[str] = frozenset()
    """Groups of the upload in which every client counts once, whatever its weight."""
    sends_norm: bool = False
    """Whether clients also send the squared norm of their displacement (FedExP)."""
    nothing: bool = False
    """Whether nothing is sent at all (local training)."""
    compress: Compressor | None = None
    """How tensors travel; None sends them as they are."""
    compresses: frozenset[str] = frozenset({"delta"})
    """The groups that are compressed: displacements and the like, for which an approximation is enough."""


@dataclass(frozen=True)
class Serving:
    """How a user is served: the model it predicts with, and what it trains first."""

    predict: Predict = predict_together
    newcomer_phases: tuple[Phase, ...] | None = None
    """What a new client trains before it is served; None leaves it to the evaluation's fine-tuning."""
    finetune_on: Where = "both"
    """The tensors that make up the served model, which fine-tuning moves."""
    finetune_like: Phase | None = None
    """The phase whose optimizer, objective and trained tensors fine-tuning takes over; None takes the newcomers' last
    phase, or the first of the algorithm's on the served tensors."""

    def with_phases(self, change: Callable[[Phase], Phase]) -> Serving:
        """The same with every phase changed."""
        newcomers, like = self.newcomer_phases, self.finetune_like
        return replace(
            self,
            newcomer_phases=None if newcomers is None else tuple(phase.changed(change) for phase in newcomers),
            finetune_like=None if like is None else like.changed(change),
        )


@dataclass(frozen=True)
class Algorithm:
    """A federated algorithm is these pieces. There is nothing to subclass."""

    phases: tuple[Phase, ...]
    """What a client does in a round."""
    server: Server = field(default_factory=lambda: descend(sgd(1.0)))
    """What the server does with the mean upload."""
    weighting: Weighting = "uniform"
    """How much a client counts: the same as others, by its samples, or by the samples it processed this round."""
    personal: Selector = nothing
    """Tensors of the model that never leave a client."""
    memory: Memory = field(default_factory=Memory)
    uploads: Uploads = field(default_factory=Uploads)
    serving: Serving = field(default_factory=Serving)
    compress_down: Compressor | None = None
    """How the shared model travels down; None sends it as it is."""
    components: int | None = None
    """How many copies of the model are shared, stacked on the first dimension (FedEM)."""
    first_model: FirstModel = first_as_drawn
    """What the algorithm does to the model before the first round, such as FedBABU's orthogonal head."""
    owns: frozenset[str] = frozenset()
    """What the algorithm sets by a rule of its own, such as the client's rate. A wrapper that sets the same is refused.
    """
    name: str = "custom"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = get_args(Weighting)
        require(self.weighting in known, "weighting", " or ".join(map(repr, known)), self.weighting)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={_in_words(v)}' for k, v in self.settings.items())})"

    def claimed(self, what: str, who: str) -> Algorithm:
        """This algorithm, in which `who` sets `what` from now on; an error where something else sets it already."""
        return replace(self.leaving(what, who), owns=self.owns | {what})

    def leaving(self, what: str, who: str) -> Algorithm:
        """This algorithm, which must leave `what` to `who`."""
        owners = [(self.name, self.owns), *((p.optimizer.name, p.optimizer.owns) for p in self.phases)]
        owner = next((name for name, owned in owners if what in owned), None)
        if owner is not None:
            raise ConfigError(f"{who} must be the only one to set {what}. Got {owner}, which sets it already.")
        return self

    def with_phases(self, change: Callable[[Phase], Phase], serving: bool = False) -> Algorithm:
        """This algorithm with every phase of training changed, and with `serving` also those that serve users."""
        phases = tuple(phase.changed(change) for phase in self.phases)
        return replace(self, phases=phases, serving=self.serving.with_phases(change) if serving else self.serving)

    def with_direction(self, wrap: Callable[[Transform], Transform]) -> Algorithm:
        """This algorithm with the gradient transform of every phase wrapped, those that serve users among them."""
        return self.with_phases(lambda phase: phase.with_direction(wrap), serving=True)


def _in_words(value: object) -> str:
    """A setting as it prints: a function by its name, because its address is another one in every process."""
    if isinstance(value, Transform):
        return _transform_in_words(value)
    is_function = inspect.isroutine(value) or isinstance(value, functools.partial)
    return str(getattr(value, "__qualname__", "partial")) if is_function else repr(value)


def _transform_in_words(transform: Transform) -> str:
    """The function that made the transform, with what its two functions use of it."""
    if is_identity(transform):
        return "identity"
    if not inspect.isfunction(transform.update):
        return _in_words(transform.update)
    made_by = _maker(transform.update)
    functions = [f for f in (transform.update, transform.init) if inspect.isfunction(f) and _maker(f) == made_by]
    return _call_in_words(made_by, *functions)


def _call_in_words(made_by: str, *functions: Callable[..., Any]) -> str:
    used: dict[str, Any] = {}
    for function in functions:
        used |= inspect.getclosurevars(function).nonlocals
    settings = {n: v for n, v in used.items() if not inspect.isfunction(v) or _maker(v) != made_by}
    return f"{made_by}({', '.join(f'{n}={_used_in_words(settings[n])}' for n in sorted(settings))})"


def _used_in_words(value: Any) -> str:
    if inspect.isfunction(value):
        return _call_in_words(_maker(value), value)
    return f"[{', '.join(map(_in_words, value))}]" if isinstance(value, list) else _in_words(value)


def _maker(function: Callable[..., Any]) -> str:
    """The outermost function in which a function was defined."""
    return function.__qualname__.partition(".<locals>")[0]
