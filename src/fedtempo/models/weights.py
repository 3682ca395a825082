"""A model's first weights: drawn on the run's seed, or kept as they came."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator

import torch
from torch import nn

from fedtempo.randomness import seed_for


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


def redraw(module: nn.Module) -> None:
    """Draw the weights of every layer below `module` again, each by its own `reset_parameters`."""
    for child in module.children():
        reset = getattr(child, "reset_parameters", None) or getattr(child, "_reset_parameters", None)
        if callable(reset):
            reset()
        else:
            redraw(child)
