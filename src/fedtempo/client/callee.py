"""A module that computes with tensors from outside: they go into the places of its own for one call."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, nn

from fedtempo.errors import ModelError
from fedtempo.params import Params
from fedtempo.tasks import Batch


class Slot(NamedTuple):
    """A place inside a module that holds a tensor, and the tensor's name; tied weights have one name."""

    holder: dict[str, Tensor | None]
    leaf: str
    name: str


class Callee(NamedTuple):
    """A module and the places of its tensors.

    `torch.func.functional_call` does the same, but looks the places up again at every call. For a small model that
    takes longer than the model.
    """

    module: nn.Module
    slots: tuple[Slot, ...]
    buffers: tuple[tuple[Slot, bool], ...] = ()
    """The places of buffers, and whether a state dict leaves them out."""

    def __call__(self, params: Params, inputs: Batch) -> Any:
        """What the module returns with these tensors in place of its own. Training updates the buffers in `params`."""
        # Put the module's own tensors back even after an error: the module is shared by all clients.
        own = [slot.holder[slot.leaf] for slot in self.slots]
        try:
            for holder, leaf, name in self.slots:
                if name in params:
                    holder[leaf] = params[name]
            output = self.module(*inputs.values()) if len(inputs) == 1 else self.module(**inputs)
            if self.module.training:
                self._take_assigned(params)
            return output
        finally:
            for slot, tensor in zip(self.slots, own, strict=True):
                slot.holder[slot.leaf] = tensor

    def _take_assigned(self, params: Params) -> None:
        """Put buffers that the module has replaced (`self.mean = ...`) in place of those that came in."""
        # Not written over these: what the module computed before may need them for its gradient.
        for (holder, leaf, name), cache in self.buffers:
            given, found = params.get(name), holder.get(leaf)
            if given is None or found is given:
                continue
            if found is None or found.shape != given.shape:
                # What is not stored may be a cache, such as a table of positions that grows.
                if cache:
                    continue
                got = "None" if found is None else f"{tuple(given.shape)} and then {tuple(found.shape)}"
                raise ModelError(
                    f"buffer {name!r} must keep its shape in training, so that it can be averaged. Got {got}."
                )
            params[name] = found.detach().to(given.dtype)


def callee_of(model: nn.Module, part: str) -> Callee:
    """The model, or one of its submodules, with the places of its tensors."""
    # Tied weights are one tensor in several places. The first name stands for all of them, as in `named_parameters`.
    names: dict[int, str] = {}
    slots, buffers = [], []
    # A layer may be in two places as well, and the part may hold the second one.
    for prefix, module in model.named_modules(remove_duplicate=False):
        for holder in (module._parameters, module._buffers):
            for leaf, tensor in holder.items():
                if tensor is None:
                    continue
                name = names.setdefault(id(tensor), f"{prefix}.{leaf}" if prefix else leaf)
                if not part or prefix == part or prefix.startswith(part + "."):
                    slots.append(Slot(holder, leaf, name))
                    if holder is module._buffers:
                        buffers.append((slots[-1], leaf in module._non_persistent_buffers_set))
    return Callee(model.get_submodule(part), tuple(slots), tuple(buffers))
