"""A plain `nn.Module`, seen as a pure function of its tensors.

A module keeps its weights inside. Clients share one module and differ in their weights, so the weights have to come in
as arguments. Nothing here trains: `client/program.py` takes gradients of `Network.loss`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fedtempo.client.callee import callee_of
from fedtempo.client.draws import seeded_draws, uses_dropout
from fedtempo.errors import ModelError
from fedtempo.models.weights import copied
from fedtempo.params import Params, is_plain
from fedtempo.tasks import SAMPLE_WEIGHT, SHARE, Batch, Meaning, Task, mean_loss

TARGET = "y"
NOT_INPUTS = (TARGET, SAMPLE_WEIGHT)
LABELS = "labels"
"""The name under which a model that makes its own loss gets the targets, as `transformers` has it."""


class Network:
    """The model in training and in evaluation mode, without weights of its own.

    A batch is a dict. `y` is the target and `sample_weight` says how much each row counts in the loss. Names with a
    leading underscore belong to the library. The rest are the model's inputs: one input goes in by position, several by
    name.
    """

    def __init__(self, model: nn.Module) -> None:
        # One copy per mode: training and scoring alternate, and nobody has to remember to switch the mode back.
        self.training = _stripped(model).train()
        self.evaluating = _stripped(model).train(False)
        self.parameters = tuple(name for name, _ in model.named_parameters())
        self.frozen = frozenset(name for name, p in model.named_parameters() if not p.requires_grad)
        self.buffers = tuple(name for name, _ in model.named_buffers())
        self.kernels = frozenset(
            f"{prefix}.weight" if prefix else "weight"
            for prefix, module in model.named_modules()
            if isinstance(module, nn.Conv2d)
        )
        self.dropout = uses_dropout(model)
        self.autocast = False
        """Whether the model computes in bfloat16 where torch holds that safe; outputs come in the weights' type."""
        self._type = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
        self.augmented = False
        """Whether inputs change from step to step, so that features cannot be reused."""
        self.has_head = isinstance(getattr(model, "body", None), nn.Module) and isinstance(
            getattr(model, "head", None), nn.Module
        )
        self.head_of_body = self.has_head
        """Whether the head's output on the body's features is the model's. A `forward` may do more than that."""
        self.outputs_are: Meaning = "classes"
        """What the outputs mean, which an algorithm has to know that mixes those of several models."""
        self._callees = {
            (train, part): callee_of(self.training if train else self.evaluating, part)
            for train in (True, False)
            for part in (("", "body", "head") if self.has_head else ("",))
        }

    def forward(self, params: Params, batch: Batch, train: bool = False) -> Tensor:
        """The model's outputs. Whatever the model does to its buffers, those in `params` stay as they are."""
        return self.forward_updating(self._with_own_buffers(params, batch), batch, train)

    def forward_updating(self, params: Params, batch: Batch, train: bool) -> Tensor:
        """The model's outputs. In training, `params` then holds the buffers as the model left them."""
        with self._randomness(batch, train):
            if "_features" in batch:
                return self._tensor(self._call("head", params, {"x": batch["_features"]}, train))
            return self._tensor(self._call("", params, inputs_of(batch), train))

    def features(self, params: Params, batch: Batch, train: bool = False) -> Tensor:
        """The output of the model's body, which is the input of its head; `params` stay as they are."""
        return self.features_updating(self._with_own_buffers(params, batch), batch, train)

    def features_updating(self, params: Params, batch: Batch, train: bool) -> Tensor:
        """The output of the model's body. In training, `params` then holds the buffers as the body left them."""
        if not self.has_head:
            raise ModelError("the model must have submodules 'body' and 'head' for its features. Got neither or one.")
        with self._randomness(batch, train):
            return self._tensor(self._call("body", params, inputs_of(batch), train))

    def _with_own_buffers(self, params: Params, batch: Batch) -> Params:
        """The same tensors, with copies of the buffers for the model to write into."""
        copies = {n: params[n].clone() for n in self.buffers if n in params}
        anchor = next(iter(inputs_of(batch).values()), None) if copies else None
        if anchor is None or is_plain(anchor):
            return {**params, **copies}
        # Side by side, what is there once for all clients gets a copy for each, as the rows are each client's own.
        zero = 0 * anchor.reshape(-1)[0]
        return {**params, **{n: t if t.dtype == torch.bool else t + zero.to(t.dtype) for n, t in copies.items()}}

    def loss(
        self,
        task: Task,
        params: Params,
        batch: Batch,
        train: bool = False,
        weights: Tensor | None = None,
        shift: Tensor | None = None,
    ) -> Tensor:
        """The batch's mean loss: the task's, or the one that the model itself makes of the targets as `labels`.

        In training, `params` then holds the buffers as the model left them. `weights` weigh the samples, `shift` is
        added to the outputs.
        """
        if not task.own:
            outputs = self.forward_updating(params, batch, train)
            return mean_loss(task, outputs if shift is None else outputs + shift, batch, weights)
        if weights is not None or shift is not None:
            raise ModelError("loss must be one of ours where an algorithm changes it (FedEM, FedRoD). Got the model's.")
        if SAMPLE_WEIGHT in batch or SHARE in batch:
            rule = "one of ours where rows are weighed (sample_weight, mixup)"
            raise ModelError(f"loss must be {rule}. Got the model's, which gets weights as a column of another name.")
        with self._randomness(batch, train):
            labels = batch[TARGET].contiguous()  # models of `transformers` call `view` on them
            return own_loss(self._call("", params, {**inputs_of(batch), LABELS: labels}, train)).to(self._type)

    def _call(self, part: str, params: Params, inputs: Batch, train: bool) -> Any:
        callee = self._callees[train, part]
        if not self.autocast:
            return callee(params, inputs)
        with torch.autocast(next(iter(inputs.values())).device.type, torch.bfloat16):
            return callee(params, inputs)

    def _tensor(self, output: Any) -> Tensor:
        tensor = outputs_of(output)
        return tensor.to(self._type) if self.autocast else tensor

    def _randomness(self, batch: Batch, train: bool) -> contextlib.AbstractContextManager[object]:
        return seeded_draws(batch["_key"]) if train and self.dropout and "_key" in batch else contextlib.nullcontext()

    def channels_last(self, params: Params) -> Params:
        """The same numbers, with convolution kernels in the channels-last memory layout.

        The activations follow the kernels, so a model of images trains about 1.4 times faster.
        """
        if not self.kernels:
            return params
        return {n: _channels_last(t) if n in self.kernels and t.dim() == 4 else t for n, t in params.items()}

    def body_is_pure(self) -> bool:
        """Whether features depend on the input and the weights alone, so that they may be computed once."""
        if not self.head_of_body or self.augmented:
            return False
        body = self.training.get_submodule("body")
        # `dropout` is also true of draws that no layer shows, and those may be in the body.
        return not any(True for _ in body.buffers()) and not self.dropout

    def hooked(self) -> bool:
        """Whether some module has hooks. A hook may do anything at every call, so such a model is not recorded."""
        return any(
            module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
            for module in self.training.modules()
        )

    def is_known(self) -> bool:
        """Whether all of the model is code that is known to depend on shapes only: torch's layers and ours."""
        return has_known_layers_only(self.training)

    def python_state(self) -> list[object]:
        """What the model's modules remember in plain Python attributes, such as a count of calls."""
        return [
            (name, attribute, repr(value))
            for name, module in self.training.named_modules()
            for attribute, value in vars(module).items()
            if not attribute.startswith("_") and isinstance(value, (int, float, str, bool, tuple, list, dict, set))
        ]


def has_known_layers_only(model: nn.Module) -> bool:
    """Whether all modules are torch's layers or ours."""
    known = ("torch.nn.modules.", "fedtempo.models.")
    return all(type(module).__module__.startswith(known) for module in model.modules())


def outputs_of(output: object) -> Tensor:
    """The tensor to score: the output itself, or the logits of a Hugging Face output, a dict or a tuple."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        named = {str(n): t for n, t in output.items() if isinstance(t, Tensor) and n != "loss"}
        tensors = list(named.values())
        found = f"a {type(output).__name__} of {', '.join(map(str, output)) or 'nothing'}"
    else:
        # A tuple may begin with the loss, which is one number.
        tensors = [t for t in output if isinstance(t, Tensor) and t.dim()] if isinstance(output, (tuple, list)) else []
        named, found = {}, f"a {type(output).__name__} with {len(tensors)} tensors"
    chosen = named.get("logits", getattr(output, "logits", tensors[0] if len(tensors) == 1 else None))
    if not isinstance(chosen, Tensor):
        several = "several outputs go side by side into one, or the model makes its loss itself (loss='own')"
        raise ModelError(f"model must return one tensor, or a dict with 'logits'; {several}. Got {found}.")
    return chosen


def own_loss(output: object) -> Tensor:
    """The loss that a model returned beside its logits."""
    if isinstance(output, Mapping):
        loss = output.get("loss")
    else:
        loss = output[0] if isinstance(output, (tuple, list)) and output else getattr(output, "loss", None)
    if not isinstance(loss, Tensor) or loss.dim():
        what = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(output).__name__
        raise ModelError(
            f"model must return its loss as one number when it is given {LABELS!r} (loss='own'). Got {what}."
        )
    return loss


def inputs_of(batch: Mapping[str, Tensor]) -> Batch:
    """The model's inputs in a batch: every column but the target, the sample weights and the library's own columns."""
    return {name: value for name, value in batch.items() if name not in NOT_INPUTS and not name.startswith("_")}


def _channels_last(kernel: Tensor) -> Tensor:
    """A convolution kernel in channels-last layout."""
    # With one input channel both layouts are the same bytes, and `contiguous` would return the kernel as it is. But
    # torch chooses the convolution by the strides, so the strides have to be written out.
    if kernel.shape[1] > 1:
        return kernel.contiguous(memory_format=torch.channels_last)
    _, _, height, width = kernel.shape
    return kernel.contiguous().as_strided(kernel.shape, (height * width, 1, width, 1))


def _stripped(model: nn.Module) -> nn.Module:
    """A copy that records no gradients, because weights always come in from outside."""
    # So its own weights are only places to put others. They share the model's memory: a large frozen base would
    # otherwise lie there once for each copy. Buffers are copied, for a layer may write into them.
    shared = {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in model.parameters() if _is_plain(p)}
    mine = copied(model, dict(shared)).requires_grad_(False)
    for module in mine.modules():
        # A sparse gradient holds the same numbers, but most of what is done to gradients here takes dense ones only.
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            module.sparse = False
        if type(module) is nn.Embedding and "forward" not in vars(module):
            module.forward = partial(_in_range, module)  # type: ignore[method-assign]
    # Other code may take a Sequential's layers one by one and keep what is between them.
    if has_known_layers_only(mine):
        for module in mine.modules():
            if type(module) is nn.Sequential:
                _pool_first(module)
    return mine


def _in_range(layer: nn.Embedding, indices: Tensor) -> Tensor:
    """The layer's vectors; an index that is out of range is an error side by side too.

    There, torch looks all clients' indices up in one long table of all clients' rows. An index that is too large, or
    below 0, would silently read another client's row. The largest integer is beyond any table.
    """
    if not (is_plain(indices) and is_plain(layer.weight)):
        outside = (indices < 0) | (indices >= layer.num_embeddings)
        indices = indices.masked_fill(outside, torch.iinfo(indices.dtype).max)
    return nn.Embedding.forward(layer, indices)


def _is_plain(parameter: nn.Parameter) -> bool:
    """Whether it is no subclass, such as a quantised one, that keeps more than a tensor."""
    return type(parameter) is nn.Parameter


def _pool_first(layers: nn.Sequential) -> None:
    """Swap a ReLU with the max-pooling after it.

    max(relu(x)) = relu(max(x)) to the bit, and after a 2x2 pooling there are a quarter as many numbers for the ReLU.
    """
    for place in range(len(layers) - 1):
        first, second = layers[place], layers[place + 1]
        hooked = any(layer._forward_hooks or layer._forward_pre_hooks for layer in (first, second))
        if type(first) is nn.ReLU and type(second) is nn.MaxPool2d and not second.return_indices and not hooked:
            layers[place], layers[place + 1] = second, first


def tensors_of(model: nn.Module, dtype: torch.dtype, device: torch.device | str) -> Params:
    """All parameters and buffers; floating-point ones in `dtype`."""
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {
        name: t.detach().clone().to(device=device, dtype=dtype if t.is_floating_point() else t.dtype)
        for name, t in named.items()
    }
