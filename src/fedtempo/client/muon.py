"""Muon as a client optimizer: orthogonalised momentum on matrices, AdamW on everything else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from fedtempo.client.newton_schulz import MULOCO, QUINTIC, Triple, newton_schulz
from fedtempo.client.transforms import Transform
from fedtempo.errors import ConfigError, is_number, require
from fedtempo.params import Params, Selector, names_of_each, zeros_like
from fedtempo.schedules import Position, Schedule

TABLES: dict[str, tuple[Triple, ...]] = {"muloco": MULOCO, "quintic": QUINTIC}
SCALES = ("spectral", "rms")


@dataclass(frozen=True)
class Muon:
    """The transform of Muon for a model, once it is known which of the model's tensors are matrices to turn."""

    mu: float
    nesterov: bool
    newton_schulz: str
    scale: str
    adam: Transform
    decay: Schedule
    matrices: Selector | Literal["hidden", "all"]

    def __post_init__(self) -> None:
        require(is_number(self.mu) and 0 <= self.mu < 1, "mu", "a number in [0, 1)", self.mu)
        require(self.newton_schulz in TABLES, "newton_schulz", " or ".join(map(repr, TABLES)), self.newton_schulz)
        require(self.scale in SCALES, "scale", " or ".join(map(repr, SCALES)), self.scale)
        named = isinstance(self.matrices, Selector) or self.matrices in ("hidden", "all")
        rule = "'hidden', 'all' or a selector such as ft.params.matching('*.weight')"
        require(named, "matrices", rule, self.matrices)

    def for_model(self, model: nn.Module, prefix: str = "") -> Transform:
        """The transform on tensors that have the model's names behind a prefix."""
        turned = {prefix + name for name in self._turned(model)}

        def split(params: Params) -> tuple[Params, Params]:
            matrices = {n: p for n, p in params.items() if n in turned and p.numel()}
            return matrices, {n: p for n, p in params.items() if n not in matrices}

        def init(params: Params) -> Any:
            matrices, others = split(params)
            return {"M": zeros_like(matrices), "adam": self.adam.init(others)}

        def update(gradient: Params, state: Any, params: Params, now: Position) -> tuple[Params, Any]:
            matrices, others = split(gradient)
            momentum = {n: self.mu * state["M"][n] + g for n, g in matrices.items()}
            ahead = {n: g + self.mu * momentum[n] for n, g in matrices.items()} if self.nesterov else momentum
            direction = {n: self._turn(matrix) for n, matrix in ahead.items()}
            stepped, after = self.adam.update(others, state["adam"], params, now) if others else ({}, state["adam"])
            direction, shrink = {**direction, **stepped}, self.decay(now)
            return {n: direction[n] + shrink * params[n] for n in gradient}, {"M": momentum, "adam": after}

        return Transform(init, update, schedules=(("weight_decay", self.decay),))

    def _turn(self, matrix: Tensor) -> Tensor:
        flat = matrix.reshape(matrix.shape[0], -1)  # a kernel of a convolution has one row an output
        rows, columns = flat.shape
        factor = (rows / columns) ** 0.5 if self.scale == "spectral" else 0.2 * max(rows, columns) ** 0.5
        turned: Tensor = (factor * newton_schulz(flat, TABLES[self.newton_schulz])).reshape(matrix.shape)
        return turned

    def _turned(self, model: nn.Module) -> frozenset[str]:
        """The names of the matrices to turn."""
        shapes = {name: p.dim() for name, p in model.named_parameters()}
        if isinstance(self.matrices, Selector):
            names = self.matrices.names(model)
            flat = sorted(name for name in names if shapes.get(name, 2) < 2)
            require(bool(names & set(shapes)), "matrices", "a selector of parameters of the model", self.matrices)
            require(not flat, "matrices", "a selector of tensors of two or more dimensions", flat[:1])
            return names
        if self.matrices == "all":
            return frozenset(name for name, dimensions in shapes.items() if dimensions > 1)
        if not isinstance(getattr(model, "head", None), nn.Module):
            rule = "said for a model without a submodule 'head': matrices='all', or a selector"
            raise ConfigError(f"matrices must be {rule}. Got {type(model).__name__}.")
        tied = {name for names in names_of_each(model) if len(names) > 1 for name in names}
        found = frozenset(
            name
            for prefix, module in model.named_modules()
            if isinstance(module, nn.Linear) and prefix != "head" and not prefix.startswith("head.")
            for name in (f"{prefix}.weight" if prefix else "weight",)
            if name in shapes and name not in tied
        )
        rule = "said for a model without linear layers before its head: matrices='all', or a selector"
        require(bool(found), "matrices", rule, type(model).__name__)
        return found
