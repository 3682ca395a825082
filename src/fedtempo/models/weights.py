"""A model's first weights: drawn from the run's seed, or kept as the user gave them."""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, ParamSpec, TypeVar

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from fedtempo.errors import ModelError, first_line, is_count, require
from fedtempo.params import names_of_each
from fedtempo.randomness import generators_kept, seed_for, seed_generators, torch_kept
from fedtempo.support.room import require_room

P = ParamSpec("P")
M = TypeVar("M", bound=nn.Module)
_MARK = "_as_constructed"
MOST_LAYERS = 1000
"""Of a model of ours: tens of thousands take a minute to build."""
LARGE = 2000
"""A model none of whose numbers is this large is made without counting its weights first."""
COPIES = 4
"""Of the weights, at the least: those at the server, a client's, its gradients, the sum."""


@contextlib.contextmanager
def seeded(seed: int, *path: str | int) -> Iterator[None]:
    """Run torch's own initialisers on derived randomness; the global generator is left as it was."""
    with torch_kept():
        # Not torch.manual_seed: without a GPU it stores a stack trace at every call for the GPU that may come, and with
        # one it would change the GPU's generator, which nobody puts back.
        torch.default_generator.manual_seed(seed_for(seed, *path))
        yield


class Start(NamedTuple):
    """Where a run's first weights come from."""

    kept: bool
    """Whether they are the ones that the module came with."""
    words: str

    def __str__(self) -> str:
        return self.words


DRAWN = Start(False, "first weights: drawn from the run's seed")
MADE = Start(False, "first weights: made by the function given as model, on the run's seed")
KEPT = Start(True, "first weights: as the module came; they do not depend on the run's seed")


class _Mark(NamedTuple):
    """What a model of ours looked like when it had just been made."""

    content: str
    owner: int
    versions: tuple[int, ...]


def freshly_drawn(make: Callable[P, M]) -> Callable[P, M]:
    """A decorator for the models of this package: notes the weights they are made with.

    As long as these are untouched, nobody has given the model weights, and a run may draw them from its seed.
    """

    @functools.wraps(make)
    def call(*args: P.args, **kwargs: P.kwargs) -> M:
        _require_size(make, *args, **kwargs)
        model = make(*args, **kwargs)
        setattr(model, _MARK, _Mark(_content(model), id(model), _versions(model)))
        return model

    return call


def _require_size(make: Callable[P, nn.Module], *args: P.args, **kwargs: P.kwargs) -> None:
    """Refuse a model of too many layers, or too large for the memory here, before it is made."""
    try:
        given = inspect.signature(make).bind(*args, **kwargs).arguments
    except TypeError:  # the call itself says what is wrong
        return
    for name, value in given.items():
        count = value if name == "layers" else len(value) if isinstance(value, (list, tuple)) else 0
        if is_count(count):
            require(count <= MOST_LAYERS, name, f"at most {MOST_LAYERS} layers", count)
    if max(_numbers_in(given.values()), default=0) < LARGE:
        return
    # Tensors of torch's device "meta" have a shape and no numbers.
    with generators_kept(), torch.device("meta"):
        shapes = make(*args, **kwargs)
    size = sum(tensor.numel() * tensor.element_size() for tensor in shapes.state_dict().values())
    require_room(COPIES * size, f"model {make.__name__!r} with {COPIES} copies of its weights")


def _numbers_in(values: Iterable[object]) -> Iterator[int]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _numbers_in(value)
        elif isinstance(value, int):
            yield value


def is_untouched(model: nn.Module) -> bool:
    """Whether this is a model of ours whose weights nobody has loaded, trained or edited since it was made."""
    mark = getattr(model, _MARK, None)
    if not isinstance(mark, _Mark):
        return False
    # Loading the same numbers again changes no number, but the user has given weights; torch's count of writes tells.
    # A copy of the model counts from 0, so the count is compared only for the original object.
    written = mark.owner == id(model) and mark.versions != _versions(model)
    return not written and mark.content == _content(model)


def build(model: nn.Module | Callable[[], nn.Module], seed: int, init: str | None = None) -> tuple[nn.Module, Start]:
    """The model to train with its first weights, and where they come from.

    Weights that somebody loaded, trained or edited are kept. They are drawn on the run's seed where nobody gave any:
    for a function that makes the model, for a model of this package as it was made, and for any module if
    `init="seed"`. `init="model"` keeps whatever the module has.
    """
    with generators_kept():
        seed_generators(seed_for(seed, "model"))  # a user's function may draw from any of them
        if not isinstance(model, nn.Module):
            return model(), MADE
        fresh = copied(model)
        if init == "seed" or (init is None and is_untouched(model)):
            # A module that came on a device would draw from that device's generator: other numbers than the CPU's.
            if any(not p.is_cpu for p in fresh.parameters()):
                fresh = put_on(fresh, "cpu")
            _draw(fresh, strict=init == "seed")
            return fresh, DRAWN
        return fresh, KEPT


def put_on(model: M, device: str, dtype: torch.dtype | None = None) -> M:
    """The model on a device. Tied weights stay tied: torch parts them where a device's tensors are of another make."""
    tied = [names for names in names_of_each(model) if len(names) > 1]
    moved = model.to(device=device, dtype=dtype)
    for first, *others in tied:
        owner, _, leaf = first.rpartition(".")
        for name in others:
            place, _, own = name.rpartition(".")
            source, target = vars(moved.get_submodule(owner)), vars(moved.get_submodule(place))
            for kind in ("_parameters", "_buffers"):
                if own in target[kind]:
                    target[kind][own] = source[kind][leaf]
    return moved


def copied(model: M, known: dict[int, nn.Parameter] | None = None) -> M:
    """A copy of the model, by `copy.deepcopy` with what it has copied already; what cannot be copied is named."""
    try:
        return copy.deepcopy(model, known)
    except Exception as error:  # the model is the user's code: a lock or an open file does not let itself be copied
        what = f"{first_line(error)}{_uncopyable(model)}"
        raise ModelError(f"the model must be one that copy.deepcopy can copy. Got: {what}.") from error


def _uncopyable(model: nn.Module) -> str:
    """The attribute that cannot be copied, and what to do about it."""
    for name, module in model.named_modules():
        for attribute, value in vars(module).items():
            if attribute in ("_parameters", "_buffers", "_modules"):
                continue
            try:
                copy.deepcopy(value)
            except Exception:
                place = ".".join(part for part in (name, attribute) if part)
                return f", in its attribute {place!r}: keep that outside the module"
    return ""


def redraw(module: nn.Module) -> None:
    """Draw the weights of every layer below `module` again, each by its own `reset_parameters`."""
    for child in module.children():
        reset = reset_of(child)
        if reset is not None:
            reset()
        else:
            redraw(child)


def redraw_whole(module: nn.Module) -> None:
    """Draw the weights of every layer again, and those of the module itself, which may be a layer."""
    redraw(module)
    reset = reset_of(module)
    if reset is not None and (is_parametrized(module) or any(True for _ in module.parameters(recurse=False))):
        reset()


def _draw(module: nn.Module, strict: bool) -> None:
    if strict:
        _require_rules(module, "model")
    reset = reset_of(module)
    if reset is not None:
        reset()
    else:
        redraw(module)


def _require_rules(module: nn.Module, path: str) -> None:
    """Raise `ModelError` unless every parameter belongs to a layer that can draw it again."""
    if reset_of(module) is not None:
        return
    if any(True for _ in module.parameters(recurse=False)):
        raise ModelError(f"init='seed' needs reset_parameters() in every layer with weights. {path} has none.")
    for name, child in module.named_children():
        _require_rules(child, f"{path}.{name}")


def reset_of(module: nn.Module) -> Callable[[], object] | None:
    """How the module draws its weights again; None where it does not say."""
    reset = getattr(module, "reset_parameters", None)
    if callable(reset):
        return functools.partial(_reset_parametrised, module) if is_parametrized(module) else reset
    return functools.partial(_reset_with_children, module) if resets_some(module) else None


def resets_some(module: nn.Module) -> bool:
    """Whether the module draws some weights of its layers itself, as torch's MultiheadAttention and Transformer do."""
    return callable(getattr(module, "_reset_parameters", None)) and not hasattr(module, "reset_parameters")


def _reset_with_children(module: nn.Module) -> None:
    """As such a module is made: first its layers draw theirs, then it draws some of them in its own way."""
    redraw(module)
    module._reset_parameters()  # type: ignore[operator]


def _reset_parametrised(layer: nn.Module) -> None:
    """As the layer was made: drawn as a plain one, and then parametrised (`weight_norm`, `spectral_norm`)."""
    # The layer's own rule would draw into the computed weight, which lasts until it is computed again.
    plain, lists = copy.deepcopy(layer), layer.parametrizations
    assert isinstance(lists, nn.ModuleDict)
    # Torch's `remove_parametrizations` would take the weight from the class, which all copies of the layer share.
    plain.__class__ = type(layer).__bases__[0]
    del plain._modules["parametrizations"]
    for name in lists:
        plain.register_parameter(name, nn.Parameter(getattr(layer, name).detach().clone()))
    plain.reset_parameters()  # type: ignore[operator]
    with torch.no_grad():
        for name, drawn in plain.named_parameters(recurse=False):
            if name not in lists:
                layer.get_parameter(name).copy_(drawn)
                continue
            try:
                setattr(layer, name, drawn.detach())  # a Parameter would be taken for a new one
            # Nobody says which numbers this weight is computed from: torch then starts from the weight itself.
            except (NotImplementedError, RuntimeError):
                lists[name].original.copy_(drawn)  # type: ignore[operator]


def _content(model: nn.Module) -> str:
    """A hash of names and numbers. In float32, so that `model.double()` is no edit."""
    state = hashlib.blake2b(digest_size=16)
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        plain = tensor.detach().cpu()
        plain = plain.to(torch.float32) if plain.is_floating_point() else plain
        state.update(f"{name} {tuple(plain.shape)}\n".encode())
        state.update(plain.contiguous().numpy().tobytes())
    return state.hexdigest()


def _versions(model: nn.Module) -> tuple[int, ...]:
    """How often torch has written to each tensor."""
    return tuple(t._version for t in (*model.parameters(), *model.buffers()))
