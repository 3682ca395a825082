"""Parameters as plain dictionaries of tensors, and selectors that say which of them are meant.

`partition` and `combine` split any set of parameters in two and put it together again; that is all
that "shared" and "personal" need.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from fedtempo.errors import ConfigError, shown

Params = dict[str, Tensor]
Scalar = float | Tensor
Tree = TypeVar("Tree")
"""Nested dicts and tuples of tensors."""


@dataclass(frozen=True)
class Selector:
    """Names some tensors of a model. `a | b`, `a & b` and `~a` name what either, both or the others do.

    >>> model = nn.ModuleDict({"body": nn.Linear(2, 3), "head": nn.Linear(3, 1)})
    >>> sorted(submodule("head").names(model))
    ['head.bias', 'head.weight']
    >>> (~submodule("head") & matching("*.bias")).names(model)
    frozenset({'body.bias'})
    """

    description: str
    picks: Callable[[str, nn.Module], bool]
    optional: bool = False
    """Whether it may match nothing; otherwise that is taken for a mistake."""

    def names(self, model: nn.Module) -> frozenset[str]:
        """The parameters and buffers of `model` that this selector means; a layer in two places has two names."""
        return frozenset(
            f"{prefix}.{leaf}" if prefix else leaf
            for prefix, module in model.named_modules(remove_duplicate=False)
            for leaf, tensor in (*module._parameters.items(), *module._buffers.items())
            if tensor is not None and self.picks(f"{prefix}.{leaf}" if prefix else leaf, module)
        )

    def __invert__(self) -> Selector:
        return Selector(f"not {self.description}", lambda name, module: not self.picks(name, module))

    def __or__(self, other: Selector) -> Selector:
        return Selector(
            f"({self.description} or {other.description})",
            lambda name, module: self.picks(name, module) or other.picks(name, module),
            self.optional and other.optional,
        )

    def __and__(self, other: Selector) -> Selector:
        # Keeps the printed form short: every algorithm intersects its own selector with the user's `trains`.
        if self is everything or other is everything:
            return other if self is everything else self
        return Selector(
            f"({self.description} and {other.description})",
            lambda name, module: self.picks(name, module) and other.picks(name, module),
            self.optional or other.optional,
        )

    def __repr__(self) -> str:
        return self.description


def chosen(model: nn.Module, selector: Selector) -> frozenset[str]:
    """The tensors that a selector means, each under its first name, by which clients hold it.

    Refuses a selector that means a tensor under one of its names and not under another.
    """
    meant = selector.names(model)
    first: set[str] = set()
    for names in names_of_each(model):
        among = [name for name in names if name in meant]
        if not among:
            continue
        if len(among) < len(names):
            other = next(name for name in names if name not in meant)
            rule = f"mean tied weights under all their names, {among[0]!r} and {other!r}, or under none"
            raise ConfigError(f"the selector must {rule}. Got {selector!r}.")
        first.add(names[0])
    return frozenset(first)


def names_of_each(model: nn.Module) -> Iterable[list[str]]:
    """The names of every parameter and buffer, the one that torch lists it by first."""
    names: dict[int, list[str]] = {}
    for listed in (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)):
        for name, tensor in listed:
            names.setdefault(id(tensor), []).append(name)
    return names.values()


def _is_statistic(name: str, module: nn.Module) -> bool:
    buffer = module._buffers.get(name.rpartition(".")[2])
    return buffer is not None and buffer.is_floating_point()


statistics = Selector("statistics", _is_statistic, optional=True)
"""Buffers of floating-point numbers, such as the running means of BatchNorm."""
everything = Selector("everything", lambda name, module: True)
nothing = Selector("nothing", lambda name, module: False, optional=True)


def submodule(prefix: str) -> Selector:
    """All tensors below one submodule, such as `head`, or below all that a shell pattern such as `layers.*` matches.

    >>> model = nn.ModuleDict({"body": nn.Linear(3, 2), "head": nn.Linear(2, 2)})
    >>> sorted(submodule("head").names(model)), sorted((~submodule("body") & matching("*.bias")).names(model))
    (['head.bias', 'head.weight'], ['head.bias'])
    """
    return Selector(f"submodule {prefix!r}", lambda name, module: fnmatch.fnmatchcase(name, prefix + ".*"))


def matching(*patterns: str) -> Selector:
    """All tensors whose name matches one of these shell patterns, such as `layers.*.bias`."""
    label = " or ".join(map(repr, patterns))
    return Selector(
        f"names like {label}", lambda name, module: any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    )


def of_type(*types: type[nn.Module], optional: bool = False) -> Selector:
    """All tensors that belong directly to a module of one of these types, such as `nn.BatchNorm2d`."""
    label = ", ".join(t.__name__ for t in types)
    return Selector(f"modules of type {label}", lambda name, module: isinstance(module, types), optional)


def select(params: Mapping[str, Tensor], names: Collection[str]) -> Params:
    """The tensors with these names, in the order `params` has them."""
    return {n: p for n, p in params.items() if n in names}


def partition(params: Mapping[str, Tensor], names: Collection[str]) -> tuple[Params, Params]:
    """Split into (named, others). `combine` is its inverse.

    >>> partition({"a": torch.tensor(1), "b": torch.tensor(2)}, ["b"])
    ({'b': tensor(2)}, {'a': tensor(1)})
    """
    return select(params, names), {n: p for n, p in params.items() if n not in names}


def combine(*parts: Mapping[str, Tensor]) -> Params:
    """One dictionary of all parts; a later part wins where names meet."""
    return {name: p for part in parts for name, p in part.items()}


def without_prefix(params: Mapping[str, Tensor], prefix: str) -> Params:
    """The tensors whose names start with `prefix`, under the rest of their names."""
    return {name.removeprefix(prefix): p for name, p in params.items() if name.startswith(prefix)}


def add(a: Mapping[str, Tensor], b: Mapping[str, Tensor], scale: Scalar = 1.0) -> Params:
    """`a + scale * b`, over the names of `a`."""
    # Three cases, for speed: no product, a product inside the addition, and a rate that is a tensor (under `vmap`).
    if isinstance(scale, float) and scale == 1.0:
        return {n: p + b[n] for n, p in a.items()}
    if isinstance(scale, (int, float)):
        return {n: torch.add(p, b[n], alpha=scale) for n, p in a.items()}
    return {n: p + scale * b[n] for n, p in a.items()}


def subtract(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> Params:
    """`a - b`, over the names of `a`."""
    return {n: p - b[n] for n, p in a.items()}


def scaled(a: Mapping[str, Tensor], factor: Scalar) -> Params:
    """`factor * a`."""
    return {n: factor * p for n, p in a.items()}


def zeros_like(a: Mapping[str, Tensor]) -> Params:
    """Zeros of the same names, shapes and types."""
    return {n: torch.zeros_like(p) for n, p in a.items()}


def dot(a: Tensor, b: Tensor) -> Tensor:
    """The sum of the products, without a tensor of products in between."""
    return torch.dot(a.reshape(-1), b.reshape(-1))


def squared_norm(a: Mapping[str, Tensor]) -> Tensor:
    """The sum of squares over all tensors together."""
    flat = [p.reshape(-1) for p in a.values()]
    return torch.stack([torch.dot(p, p) for p in flat]).sum() if flat else torch.zeros(())


def inner(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> Tensor:
    """The inner product over all tensors of `a`, taken as one vector."""
    return torch.stack([dot(p, b[n]) for n, p in a.items()]).sum() if a else torch.zeros(())


def norm(a: Mapping[str, Tensor]) -> Tensor:
    """The Euclidean norm over all tensors together."""
    return torch.sqrt(squared_norm(a))


def plain_norm(a: Mapping[str, Tensor]) -> float | None:
    """`norm` as a Python number, without tensors of one number in between; None where Python cannot read it cheaply.

    >>> plain_norm({"w": torch.tensor([3.0]), "b": torch.tensor([4.0])})
    5.0
    """
    square = plain_squared_norm(a)
    return None if square is None else math.sqrt(square)


def plain_squared_norm(a: Mapping[str, Tensor]) -> float | None:
    """`squared_norm` as `plain_norm` has it."""
    return plain_inner(a, a)


def plain_inner(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> float | None:
    """`inner` as `plain_norm` has it."""
    flat = [(p, b[n]) if p.dim() == 1 else (p.reshape(-1), b[n].reshape(-1)) for n, p in a.items()]
    # One question for all tensors: asking each takes as long as the small ones' products.
    if torch._C._functorch.peek_interpreter_stack() is not None or not (flat and flat[0][0].is_cpu):
        return None
    return sum([torch.dot(p, q).item() for p, q in flat])


def is_plain(tensor: Tensor) -> bool:
    """Whether Python can read the numbers cheaply: they are on the CPU, and no function transform wraps them."""
    return tensor.device.type == "cpu" and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether all numbers are finite. A finite sum proves it; a sum that overflows is checked number by number."""
    floats = [t for t in tensors if t.is_floating_point()]
    there = [torch.isfinite(t).all() for t in floats if not t.is_cpu]
    if there:  # one question for a device, which would wait for every answer
        return bool(torch.stack(there).all()) and all_finite(t for t in floats if t.is_cpu)
    if math.isfinite(sum(t.sum().item() for t in floats)):
        return True
    return all(bool(torch.isfinite(t).all()) for t in floats)


def different_form(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> str:
    """In words, the first difference in names, shapes or types; empty where there is none.

    >>> different_form({"w": torch.zeros(2)}, {"w": torch.zeros(3)})
    "(2,) torch.float32 for 'w', which has (3,) torch.float32"
    """
    for name in wanted.keys() ^ found.keys():
        return f"nothing for {name!r}" if name in wanted else f"{name!r}, which is not among them"
    for name, tensor in wanted.items():
        one, other = ((tuple(t.shape), t.dtype) for t in (found[name], tensor))
        if one != other:
            return f"{one[0]} {one[1]} for {name!r}, which has {other[0]} {other[1]}"
    return ""


def bits_of(tensor: Tensor) -> np.ndarray:
    """The tensor's bits as an array, to be hashed; numpy has no bfloat16, which comes as 16-bit integers."""
    plain = tensor.detach().cpu().contiguous()
    array: np.ndarray = (plain.view(torch.int16) if plain.dtype == torch.bfloat16 else plain).numpy()
    return array


def size_in_bytes(a: Mapping[str, Tensor]) -> int:
    """The number of bytes of these tensors."""
    return sum(p.numel() * p.element_size() for p in a.values())


def leaves(tree: Any, path: str) -> Params:
    """The tensors of nested dicts and tuples, named by where they stand: `path/key/0`."""
    if isinstance(tree, Tensor):
        return {path: tree}
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree)
    return {name: t for key, part in parts for name, t in leaves(part, f"{path}/{key}").items()}


def no_tensor_in(tree: object, path: str = "") -> str:
    """In words, the first value of nested dicts, lists and tuples that is no tensor; empty where all are.

    >>> no_tensor_in({"mean": torch.zeros(2), "count": (0,)})
    '0 at count/0'
    """
    if isinstance(tree, Tensor):
        return ""
    if not isinstance(tree, (dict, list, tuple)):
        return f"{shown(tree)} at {path}" if path else shown(tree)
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree)
    return next(filter(None, (no_tensor_in(part, f"{path}/{key}" if path else str(key)) for key, part in parts)), "")


def tensors_in(tree: object) -> Iterator[Tensor]:
    """The tensors of nested dicts and tuples."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, (dict, tuple)):
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from tensors_in(part)


def tree_map(fn: Callable[..., Tensor], tree: Tree, *others: Tree) -> Tree:
    """Apply `fn` to the tensors at equal places of nested dicts and tuples; the result has their form."""
    trees: tuple[Any, ...] = (tree, *others)
    mapped: Any
    if isinstance(tree, dict):
        mapped = {key: tree_map(fn, *(t[key] for t in trees)) for key in tree}
    elif isinstance(tree, tuple):
        parts = [tree_map(fn, *together) for together in zip(*trees, strict=True)]
        mapped = type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    else:
        mapped = fn(*trees)
    same_form: Tree = mapped
    return same_form
