"""What a run starts from: its model, the tensors that the user gave, and the notes about both."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from fedtempo.client.network import inputs_of, tensors_of
from fedtempo.data.federated import FederatedData
from fedtempo.errors import ConfigError, DataError, FedTempoError, ModelError, first_line, fits, require
from fedtempo.federation.federation import Federation
from fedtempo.models.weights import KEPT, Start, build, copied
from fedtempo.params import Params, names_of_each, nothing, select
from fedtempo.randomness import generators_kept, seed_for, seed_generators


def first_model(
    model: nn.Module | Callable[[], nn.Module], seed: int, init: object, data: FederatedData
) -> tuple[nn.Module, Start]:
    """The model with its first weights, and where they come from. Lazy layers take their shapes from a batch."""
    rule = "an nn.Module or a function that makes one"
    require(isinstance(model, nn.Module) or callable(model), "model", rule, model)
    try:
        first, origin = _built(model, seed, init if isinstance(init, str) else None)
    except FedTempoError:
        raise
    except Exception as error:  # the user's code
        raise ModelError(f"the model cannot be made: {type(error).__name__}: {first_line(error)}") from error
    require(isinstance(first, nn.Module), "model", rule, first)
    if isinstance(first, torch.jit.ScriptModule):
        raise ModelError("model must be an nn.Module as it was written. Got a compiled one (torch.jit).")
    unreal = [name for name, tensor in (*first.named_parameters(), *first.named_buffers()) if tensor.is_complex()]
    if unreal:  # torch would drop the imaginary parts
        raise ModelError(f"the model must have real tensors. Got complex numbers in {unreal[0]!r}.")
    # A copy of a parameter has no hooks, so the user's own module is looked at.
    _refuse_hooks(model if isinstance(model, nn.Module) else first)
    lazy = [name for name, tensor in first.named_parameters() if isinstance(tensor, UninitializedParameter)]
    if lazy and isinstance(model, nn.Module):
        how = "call it once on a batch, or give the class or a function that makes the model"
        raise ModelError(f"the model must know its shapes. Got a lazy layer with {lazy[0]!r}: {how}.")
    if lazy:
        _call_once(first, seed, data)
    return first, origin


def _built(model: nn.Module | Callable[[], nn.Module], seed: int, init: str | None) -> tuple[nn.Module, Start]:
    """The model. A function is called twice: it may draw from a generator of its own, or hand out a module it has."""
    first, origin = build(model, seed, init)
    if isinstance(model, nn.Module) or not isinstance(first, nn.Module):
        return first, origin
    again, _ = build(model, seed, init)
    if again is first:  # somebody holds this module and gave its weights: both stay as they are
        return copied(first), KEPT
    tensors, others = (dict(itertools.chain(one.named_parameters(), one.named_buffers())) for one in (first, again))
    differs = next((name for name, value in tensors.items() if not _alike(value, others.get(name))), None)
    if differs is not None:
        how = "draw from torch's, numpy's or Python's own generator, or give the module itself"
        raise ModelError(
            f"the function given as model must make the same model on the same seed: {how}. Got another {differs!r}."
        )
    return first, origin


def _alike(one: Tensor, other: Tensor | None) -> bool:
    """Whether both hold the same numbers. Lazy layers have none yet."""
    if isinstance(one, (UninitializedParameter, UninitializedBuffer)):
        return type(other) is type(one)
    if other is None or one.shape != other.shape:
        return False
    return one.is_meta or bool(((one == other) | one.isnan()).all())


def _refuse_hooks(model: nn.Module) -> None:
    """A hook on a parameter, such as a mask of its gradient: clients train other tensors, which it would never see."""
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            how = "mask the weight in forward, choose tensors by trains=, or change gradients in an optimizer of yours"
            raise ModelError(f"the model's parameters must have no hooks: {how}. Got one on {name!r}.")


def _call_once(model: nn.Module, seed: int, data: FederatedData) -> None:
    """Lazy layers draw their weights at the first call: on the run's seed, and without moving running statistics."""
    rows = inputs_of(data.client(int(data.clients[0])))
    modes = {module: module.training for module in model.modules()}
    try:
        with generators_kept(), torch.no_grad():
            seed_generators(seed_for(seed, "lazy"))
            model.eval()
            model(*rows.values()) if len(rows) == 1 else model(**rows)
    except Exception as error:  # the model is the user's code
        shapes = {name: tuple(values.shape) for name, values in rows.items()}
        raise ModelError(f"the model does not run on a batch of shapes {shapes}: {first_line(error)}") from error
    for module, mode in modes.items():
        module.training = mode


def given_tensors(init: Mapping[str, Tensor] | Literal["model", "seed"] | None) -> Params | None:
    """The tensors of `init`, all finite."""
    if init is None or init in ("model", "seed"):
        return None
    require(isinstance(init, Mapping), "init", "a state dict, 'model', 'seed' or None", init)
    tensors: Params = dict(init)  # type: ignore[arg-type]
    for name, value in tensors.items():
        holds = isinstance(value, Tensor) and not value.is_complex() and bool(torch.isfinite(value).all())
        require(holds, f"init[{name!r}]", "a tensor of finite numbers", value)
    return tensors


def by_first_names(tensors: Params | None, model: nn.Module) -> Params | None:
    """Tied weights under their first name, by which clients hold them. A state dict has them under all their names."""
    if tensors is None:
        return None
    for first, *others in names_of_each(model):
        for name in tensors.keys() & set(others):
            value = tensors[name]
            same = first not in tensors or torch.equal(tensors[first], value)
            require(same, f"init[{name!r}]", f"equal to init[{first!r}], to which it is tied", value)
            tensors = {**{n: t for n, t in tensors.items() if n != name}, first: value}
    return tensors


def start_notes(
    federation: Federation, origin: Start, given: Params | None, obstacle: str | None, model: object
) -> tuple[Start, tuple[str, ...]]:
    """Where the first weights come from, and what else the user should know."""
    if given is not None:
        rest = "" if set(given) >= set(federation.first_shared()) else f"; others {origin.words.partition(': ')[2]}"
        origin = Start(origin.kept, f"first weights: given by init{rest}")
    notes = [origin.words, f"task: {federation.problem.task}"]
    personal = federation.algorithm.personal
    if personal.optional and personal is not nothing and not federation.personal_names:
        name = federation.algorithm.name
        notes.append(f"{name}: the model has no {personal!r}, so nothing is personal and all of it is shared")
    came = {p.dtype for p in model.parameters()} if isinstance(model, nn.Module) else set()
    if torch.float64 in came and federation.problem.dtype != torch.float64:
        notes.append(
            f"type: the model came in float64 and trains in {federation.problem.dtype}; say dtype=torch.float64"
        )
    if obstacle is not None:
        notes.append(f"backend: auto runs clients one by one, because vmap cannot run this model ({obstacle})")
    return origin, tuple(notes)


def with_starts(
    federation: Federation,
    init: Params | None,
    init_clients: Mapping[int, Mapping[str, Tensor]] | None,
    origin: Start,
) -> Federation:
    """Personal tensors given for everybody (in `init`, or by a model whose weights are kept) or for some clients."""
    form = init_clients is None or fits(init_clients, Mapping[int, Mapping[str, Any]])
    require(form, "init_clients", "tensors by name, by client number", init_clients)
    names = federation.personal_names & set(init or {})
    if names and names != federation.personal_names:
        missing = min(federation.personal_names - names)
        raise ConfigError(f"init must hold all personal tensors or none. Got some, without {missing!r}.")
    template = tensors_of(federation.problem.model, federation.problem.dtype, federation.problem.device)
    common = select(template, federation.personal_names) if origin.kept else {}
    common |= {n: init[n].detach().clone().to(template[n].dtype) for n in names} if init else {}
    given = {int(c): dict(tensors) for c, tensors in (init_clients or {}).items()}
    others = set(given) - set(range(len(federation.problem.data)))
    if others:
        raise DataError(f"init_clients must name clients in [0, {len(federation.problem.data)}). Got {min(others)}.")
    return replace(federation, common_start=common or None, given_clients=given)
