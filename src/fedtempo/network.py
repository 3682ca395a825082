"""A plain `nn.Module`, seen as a pure function of its tensors."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedtempo.dropout import seeded_dropout, uses_dropout
from fedtempo.errors import ModelError
from fedtempo.params import Params
from fedtempo.randomness import seed_for
from fedtempo.tasks import Batch

TARGET = "y"


class Network:
    """The model in training and in evaluation mode, without weights of its own.

    A batch is a dict. `y` is the target; a name with a leading underscore is the library's; the rest are
    the model's inputs: one input goes in by position, several by name.
    """

    def __init__(self, model: nn.Module) -> None:
        self.training = _stripped(model).train()
        self.evaluating = _stripped(model).train(False)
        self.parameters = tuple(name for name, _ in model.named_parameters())
        self.buffers = tuple(name for name, _ in model.named_buffers())
        self.dropout = uses_dropout(model)
        self.has_head = isinstance(getattr(model, "body", None), nn.Module) and isinstance(
            getattr(model, "head", None), nn.Module
        )

    def forward(self, params: Params, batch: Batch, train: bool = False) -> Tensor:
        """The model's outputs. In training, buffers inside `params` are updated in place."""
        model = self.training if train else self.evaluating
        if "_features" in batch:
            return _call(model.get_submodule("head"), _below("head", params), {"x": batch["_features"]})
        with self._randomness(batch, train):
            return _call(model, params, inputs_of(batch))

    def features(self, params: Params, batch: Batch, train: bool = False) -> Tensor:
        """What the body hands to the head."""
        model = self.training if train else self.evaluating
        with self._randomness(batch, train):
            return _call(model.get_submodule("body"), _below("body", params), inputs_of(batch))

    def _randomness(self, batch: Batch, train: bool) -> contextlib.AbstractContextManager[object]:
        return seeded_dropout(batch["_key"]) if train and self.dropout and "_key" in batch else contextlib.nullcontext()

    def body_is_pure(self) -> bool:
        """Whether features depend on the input and the weights alone, so that they may be computed once."""
        if not self.has_head:
            return False
        body = self.training.get_submodule("body")
        return not any(True for _ in body.buffers()) and not uses_dropout(body)


def inputs_of(batch: Mapping[str, Tensor]) -> Batch:
    """The model's inputs in a batch: everything but the target and the library's own columns."""
    return {name: value for name, value in batch.items() if name != TARGET and not name.startswith("_")}


def _call(model: nn.Module, params: Params, inputs: Batch) -> Tensor:
    if len(inputs) == 1:
        output = functional_call(model, params, (next(iter(inputs.values())),))
    else:
        output = functional_call(model, params, (), inputs)
    if not isinstance(output, Tensor):
        raise ModelError(f"model must return one tensor. Got {type(output).__name__}.")
    return output


def _below(prefix: str, params: Params) -> Params:
    return {name[len(prefix) + 1 :]: p for name, p in params.items() if name.startswith(prefix + ".")}


def _stripped(model: nn.Module) -> nn.Module:
    """A copy without gradients: weights always come in from outside."""
    return copy.deepcopy(model).requires_grad_(False)


@contextlib.contextmanager
def seeded(seed: int, *path: str | int) -> Iterator[None]:
    """Run torch's own initialisers on derived randomness; the global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_for(seed, *path))
        yield


def build(model: nn.Module | Callable[[], nn.Module], seed: int, keep_weights: bool = False) -> nn.Module:
    """The model to train, with its first weights.

    A function is called, and a module that has `reset_parameters()` of its own (all of ours have) is drawn
    again, both on the run's seed. Any other module keeps the weights it came with.
    """
    with seeded(seed, "model"):
        if not isinstance(model, nn.Module):
            return model()
        fresh = copy.deepcopy(model)
        reset = getattr(fresh, "reset_parameters", None)
        if callable(reset) and not keep_weights:
            reset()
        return fresh


def tensors_of(model: nn.Module, dtype: torch.dtype, device: torch.device | str) -> Params:
    """All parameters and buffers; floating-point ones in `dtype`."""
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {
        name: t.detach().clone().to(device=device, dtype=dtype if t.is_floating_point() else t.dtype)
        for name, t in named.items()
    }


def redraw(module: nn.Module) -> None:
    """Draw the weights of every layer below `module` again, each by its own `reset_parameters`."""
    for child in module.children():
        reset = getattr(child, "reset_parameters", None) or getattr(child, "_reset_parameters", None)
        if callable(reset):
            reset()
        else:
            redraw(child)
