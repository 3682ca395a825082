"""A model's first weights: drawn from the run's seed, or kept as the user gave them."""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
from collections.abc import Callable, Iterator
from typing import NamedTuple, ParamSpec, TypeVar

import torch
from torch import nn

from fedtempo.errors import ModelError
from fedtempo.randomness import generators_kept, seed_for, seed_generators

P = ParamSpec("P")
M = TypeVar("M", bound=nn.Module)
_MARK = "_as_constructed"


@contextlib.contextmanager
def seeded(seed: int, *path: str | int) -> Iterator[None]:
    """Run torch's own initialisers on derived randomness; the global generator is left as it was."""
    # No devices: models are made on the CPU, and to save a GPU's generator would start the GPU in every process.
    with torch.random.fork_rng(devices=[]):
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
        model = make(*args, **kwargs)
        setattr(model, _MARK, _Mark(_content(model), id(model), _versions(model)))
        return model

    return call


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
        fresh = copy.deepcopy(model)
        if init == "seed" or (init is None and is_untouched(model)):
            _draw(fresh, strict=init == "seed")
            return fresh, DRAWN
        return fresh, KEPT


def redraw(module: nn.Module) -> None:
    """Draw the weights of every layer below `module` again, each by its own `reset_parameters`."""
    for child in module.children():
        reset = _reset_of(child)
        if reset is not None:
            reset()
        else:
            redraw(child)


def _draw(module: nn.Module, strict: bool) -> None:
    if strict:
        _require_rules(module, "model")
    reset = _reset_of(module)
    if reset is not None:
        reset()
    else:
        redraw(module)


def _require_rules(module: nn.Module, path: str) -> None:
    """Raise `ModelError` unless every parameter belongs to a layer that can draw it again."""
    if _reset_of(module) is not None:
        return
    if any(True for _ in module.parameters(recurse=False)):
        raise ModelError(f"init='seed' needs reset_parameters() in every layer with weights. {path} has none.")
    for name, child in module.named_children():
        _require_rules(child, f"{path}.{name}")


def _reset_of(module: nn.Module) -> Callable[[], object] | None:
    # Some of torch's own layers, such as MultiheadAttention, have it under the name with an underscore.
    reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
    return reset if callable(reset) else None


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
