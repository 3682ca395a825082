"""A trained model to take away: the user's own module with the trained tensors in it, or a file of it.

Nothing of FedTempo is in what leaves here: a module is of the class that the user gave, and a file is read by
safetensors, torch or ONNX Runtime alone.
"""

from __future__ import annotations

import copy
import json
import logging
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn

from fedtempo.algorithms.algorithm import Predict, predict_personal, predict_shared, predict_together
from fedtempo.client.network import inputs_of, outputs_of
from fedtempo.data.federated import FederatedData
from fedtempo.errors import ConfigError, first_line, require
from fedtempo.federation.federation import Federation
from fedtempo.federation.problem import Problem
from fedtempo.models.split import resize_head
from fedtempo.params import Params, combine
from fedtempo.support.extras import library
from fedtempo.support.files import replacing, write_atomically

Format = Literal["safetensors", "torch", "onnx"]
FORMATS: dict[str, str] = {"safetensors": ".safetensors", "torch": ".pt2", "onnx": ".onnx"}
"""The ending of a file of each format."""
PREPARATION = "preparation"
"""The name under which a file says what was done to its inputs before training."""
SERVED: dict[Predict, Callable[[Params, Params], Params]] = {
    predict_together: combine,
    predict_shared: lambda shared, personal: shared,
    predict_personal: lambda shared, personal: {**shared, **personal},
}
"""Which tensors a user's model is made of, by how it predicts."""


def plain_module(federation: Federation, shared: Params, personal: Params) -> nn.Module:
    """The run's module with these tensors, in evaluation mode. It can be trained further: what was frozen stays so."""
    predict = federation.algorithm.serving.predict
    if predict not in SERVED:
        name = federation.algorithm.name
        raise ConfigError(f"{name} predicts with more than one module, so there is no single one. Use `personalize`.")
    tensors = SERVED[predict](shared, personal)
    model = copy.deepcopy(federation.problem.model)
    own = dict(model.named_parameters()) | dict(model.named_buffers())
    for name, tensor in tensors.items():
        # Clients with their own classes have heads of their own size.
        if name in own and own[name].shape != tensor.shape:
            resize_head(model, tensor.shape[0])
            break
    _put(tensors, model)
    missing = own.keys() - tensors.keys()
    if missing:
        raise ConfigError(
            f"a model must have all its tensors. {min(missing)!r} is personal: say whose: client= (--client) or rows."
        )
    return model.eval()


def _put(tensors: Params, model: nn.Module) -> None:
    """Give the model these tensors, each by its name."""
    # Not by `load_state_dict`: it leaves out buffers that are not stored, and a module may load in a way of its own.
    names: dict[int, str] = {}
    given = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    for prefix, module in model.named_modules(remove_duplicate=False):
        for leaf, own in (*module._parameters.items(), *module._buffers.items()):
            name = names.setdefault(id(own), f"{prefix}.{leaf}" if prefix else leaf)
            if own is None or name not in given or torch.equal(own.detach(), given[name]):
                continue
            if leaf in module._parameters:
                own.data.copy_(given[name])
            else:
                module._buffers[leaf] = given[name]
                # What training wrote belongs to the model: files and state dicts have to hold it.
                module._non_persistent_buffers_set.discard(leaf)


def write_model(
    model: nn.Module,
    example: Mapping[str, Tensor],
    path: Path,
    format: Format,
    notes: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """Write a model to a file; `example` is a batch of the data, for formats that hold the computation too.

    `notes` are texts that the file carries: metadata of safetensors and ONNX, extra files of `torch.export`.
    """
    require(format in FORMATS, "format", " or ".join(map(repr, FORMATS)), format)
    place = path if path.suffix else path.with_suffix(FORMATS[format])
    if format == "safetensors":
        tensors = {n: t.contiguous() for n, t in _untied(model).items()}
        return write_atomically(place, save(tensors, dict(notes) or None), "path")
    if format == "onnx" and any(tensor.dtype == torch.bfloat16 for tensor in _untied(model).values()):
        how = "format='torch' holds it as it is; autocast=True trains in bfloat16 with weights in float32"
        raise ConfigError(f"format 'onnx' needs weights that ONNX Runtime computes with. Got torch.bfloat16: {how}.")
    # What a file computes is for predictions alone: outputs that ask for gradients could not become numpy's arrays.
    model = model.requires_grad_(False)
    program = _exported(_with_one_output(model) if format == "onnx" else model, example)
    with replacing(place, "path") as partial:
        if format == "torch":
            with partial.open("wb") as file:
                torch.export.save(program, file, extra_files={f"{name}.json": text for name, text in notes.items()})
        else:
            _write_onnx(program, list(inputs_of(example)), partial, notes)
    return place


def preparation_notes(federation: Federation) -> dict[str, str]:
    """What was done to rows before they came to the model, as JSON.

    Of a private run it stays here: means of training rows are not covered by its guarantee.
    """
    data = federation.problem.data
    if federation.private or (data.preparation is None and not data.normalise):
        return {}
    if data.preparation is not None:
        return {PREPARATION: json.dumps(data.preparation.as_dict())}
    by_column = {name: {"mean": mean, "scale": scale} for name, (mean, scale) in data.normalise.items()}
    return {PREPARATION: json.dumps(by_column)}


class OnRawRows(nn.Module):
    """A model that takes rows as they were before gaps were filled and numbers scaled; it is written, not handed out.

    It computes as the data did, in the same order and precision, so the model inside sees the same bits.
    """

    def __init__(self, model: nn.Module, data: FederatedData, dtype: torch.dtype) -> None:
        super().__init__()
        prepared = data.preparation
        kind = dtype if prepared is None else torch.float64
        mean, scale = data.normalise["x"] if prepared is None else (prepared.mean, prepared.scale)
        self.model, self.dtype, self.fills = model, dtype, prepared is not None
        for name, numbers in (("fill", prepared.fill if prepared else 0.0), ("mean", mean), ("scale", scale)):
            self.register_buffer(name, torch.tensor(numbers, dtype=kind))

    def forward(self, x: Tensor) -> object:
        """The model's output for raw rows."""
        mean, scale, fill = self.get_buffer("mean"), self.get_buffer("scale"), self.get_buffer("fill")
        rows = x.to(mean.dtype)
        rows = torch.where(torch.isnan(rows), fill, rows) if self.fills else rows
        return self.model(((rows - mean) / scale).to(self.dtype))


def on_raw_rows(federation: Federation, model: nn.Module, client: int) -> tuple[nn.Module, dict[str, Tensor]]:
    """The model for rows as the data file has them, and an example of such rows."""
    problem, data = federation.problem, federation.problem.data
    require(
        not federation.private, "raw", "left out of a private run: means of its rows are not in its guarantee", True
    )
    known = list(inputs_of(example_batch(problem, client))) == ["x"] and (data.preparation or "x" in data.normalise)
    require(bool(known), "raw", "left out: nothing was done to these rows before training", True)
    rows = np.asarray(data.columns["x"][data.positions(_with_rows(data, client))[[0, -1]]])
    raw = torch.from_numpy(rows if data.preparation is None else rows.astype(np.float64))
    return OnRawRows(model, data, problem.dtype).to(problem.device), {"x": raw.to(problem.device)}


def example_batch(problem: Problem, client: int) -> dict[str, Tensor]:
    """Two rows of a client, for formats that hold the computation."""
    rows = problem.client_rows(_with_rows(problem.data, client))
    return {name: part[:2] if len(part) > 1 else part.expand(2, *part.shape[1:]) for name, part in rows.items()}


def _with_rows(data: FederatedData, client: int) -> int:
    """The client, or one that trains where it has no training rows: an example is for its shapes and types alone."""
    empty = client in range(len(data)) and not len(data.positions(client))
    return int(data.clients[0]) if empty else client


def _untied(model: nn.Module) -> dict[str, Tensor]:
    """Every tensor once by name; safetensors refuses two names for one memory, so tied weights are copied."""
    # The module's own `state_dict` may hold other things as well, or have other names for them.
    found = nn.Module.state_dict(model)
    return {name: tensor.detach().clone() for name, tensor in found.items() if isinstance(tensor, Tensor)}


def _call(example: Mapping[str, Tensor]) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """The arguments that the model is called with: one input by position, several by name."""
    inputs = inputs_of(example)
    return (tuple(inputs.values()), {}) if len(inputs) == 1 else ((), inputs)


def _with_one_output(model: nn.Module) -> nn.Module:
    """The model, with logits alone where it returns several tensors: in ONNX, outputs have no names of the model's."""
    alone = copy.deepcopy(model)
    alone.register_forward_hook(lambda module, inputs, output: outputs_of(output))
    return alone


def _exported(model: nn.Module, example: Mapping[str, Tensor]) -> Any:
    """The model's computation for any number of rows."""
    args, kwargs = _call(example)
    rows = torch.export.Dim("rows", min=1)
    shapes: Any = tuple({0: rows} for _ in args) if args else {name: {0: rows} for name in kwargs}
    try:
        return torch.export.export(model, args, kwargs, dynamic_shapes=shapes)
    except Exception as error:  # torch's compiler raises its own kinds for code it cannot follow
        raise ConfigError(f"the model cannot be exported by torch: {first_line(error)}. Use safetensors.") from error


def _write_onnx(program: Any, inputs: list[str], place: Path, notes: Mapping[str, str]) -> None:
    library("onnxscript", "onnx", "format 'onnx'")  # torch's exporter needs it and says so only with a traceback
    exporter = logging.getLogger("torch.onnx")
    level = exporter.level
    with warnings.catch_warnings():
        # Torch's exporter speaks of its own internals, and of a torchvision that nobody asked for.
        warnings.simplefilter("ignore")
        exporter.setLevel(logging.ERROR)
        try:
            made: Any = torch.onnx.export(program, input_names=inputs, output_names=["output"], verbose=False)
            made.model.metadata_props.update(notes)
            made.save(place, external_data=False)
        finally:
            exporter.setLevel(level)


class PersonalModel(nn.Module):
    """One user's model: call it on inputs to get outputs."""

    def __init__(
        self, shared: Params, personal: Params, predict: Callable[[Params, Params, dict[str, Tensor]], Tensor]
    ) -> None:
        super().__init__()
        self.shared = shared
        self.personal = personal
        self._predict = predict

    def forward(self, x: Tensor | None = None, **inputs: Tensor) -> Tensor:
        """Outputs for one input by position or several by name."""
        given = {"x": x, **inputs} if x is not None else inputs
        like = next(p for p in (*self.shared.values(), *self.personal.values()) if p.is_floating_point())
        batch = {name: _as_input(value, like) for name, value in given.items()}
        with torch.no_grad():
            return self._predict(self.shared, self.personal, batch)


def _as_input(value: Any, like: Tensor) -> Tensor:
    """An array or tensor where the model is; floating-point numbers in the model's type."""
    tensor = torch.as_tensor(value, device=like.device)
    return tensor.to(like.dtype) if tensor.is_floating_point() else tensor


def predictor(federation: Federation) -> Callable[[Params, Params, dict[str, Tensor]], Tensor]:
    """From shared and personal tensors and a batch to what the algorithm predicts."""
    return lambda shared, personal, batch: federation.algorithm.serving.predict(
        federation.problem.network, shared, personal, batch, False
    )
