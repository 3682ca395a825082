"""Augmentation: a training batch is changed at random before a client's step.

Randomness is derived from (seed, round, client, step), so every backend and every resumed run sees the same batches.
An augmentation is a function of one client's batch and a key. Those below draw one key per row, so that clients that
train side by side are augmented at once, with the same bits as one by one.

Augmentations chain: `random_crop(4) | random_flip()`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from fedtempo.errors import ConfigError, is_count, is_number, require
from fedtempo.randomness import client_keys, generators_kept, row_keys, scramble, seed_generators, uniform_rows
from fedtempo.tasks import Batch

PerRow = Callable[[Batch, Tensor], Batch]
"""(rows of any number of clients, one key per row) -> the rows, augmented; no row may influence another."""
PerClient = Callable[[Batch, Tensor], Batch]
"""(one client's rows, one key) -> the rows, augmented."""
_INPUT = "x"


@dataclass(frozen=True)
class Augment:
    """A named augmentation; `per_row` is None where rows influence each other (mixup) or the function is a user's."""

    name: str
    settings: dict[str, Any]
    per_client: PerClient = field(compare=False, repr=False)
    per_row: PerRow | None = field(default=None, compare=False, repr=False)

    def __or__(self, other: Augment) -> Augment:
        return chain(self, other)

    def __repr__(self) -> str:
        if self.name == "chain":
            return " | ".join(map(repr, self.settings["of"]))
        return f"{self.name}({', '.join(f'{key}={value!r}' for key, value in self.settings.items())})"

    def lanes(self, batch: Batch, lengths: np.ndarray, keys: Tensor) -> Batch:
        """Batches of several clients, stacked; rows beyond a client's length are padding and are never looked at."""
        own = {name: value for name, value in batch.items() if not name.startswith("_")}
        clients, width = next(iter(own.values())).shape[:2]
        if self.per_row is not None:
            flat = {name: value.flatten(0, 1) for name, value in own.items()}
            done = self.per_row(flat, row_keys(keys, width).flatten())
            return {**batch, **{name: value.view(clients, width, *value.shape[1:]) for name, value in done.items()}}
        pieces = []
        for lane, length in enumerate(lengths.tolist()):
            # A user's function may write over its batch, which may be the stored rows themselves.
            given = {name: value[lane, :length].clone() for name, value in own.items()}
            mine = self._checked(self.per_client(given, keys[lane]), given)
            pieces.append({name: _filled(value, width) for name, value in mine.items()})
        return {**batch, **{name: torch.stack([piece[name] for piece in pieces]) for name in pieces[0]}}

    def _checked(self, found: Any, given: Batch) -> Batch:
        """What a user's function made of a batch: the same columns, with as many rows."""
        length = len(next(iter(given.values())))
        named = dict(found) if isinstance(found, Mapping) else {"": found}
        shapes = {name: tuple(v.shape) if isinstance(v, Tensor) else type(v).__name__ for name, v in named.items()}
        if set(given) <= set(named) and all(shape[:1] == (length,) for shape in shapes.values()):
            return named
        rule = f"return a batch with the columns {', '.join(given)}, each a tensor with {length} rows"
        raise ConfigError(f"augment {self.name!r} must {rule}. Got {shapes.get('', shapes)}.")

    def one(self, batch: Batch, key: Tensor) -> Batch:
        """One client's batch."""
        stacked = {name: value.unsqueeze(0) for name, value in batch.items() if not name.startswith("_")}
        length = len(next(iter(stacked.values()))[0])
        done = self.lanes(stacked, np.array([length]), key.reshape(1))
        return {**batch, **{name: value[0] for name, value in done.items()}}


def step_keys(seed: int, clients: np.ndarray, path: tuple[int, ...], step: int) -> Tensor:
    """A key per client for the augmentation of one step; `path` is that of the round."""
    return torch.from_numpy(scramble(client_keys(seed, clients, "augment", *path) + np.int64(step)))


def as_augment(given: Augment | PerClient | None) -> Augment | None:
    """An augmentation, or a user's function of (batch, key)."""
    if given is None or isinstance(given, Augment):
        return given
    if isinstance(given, nn.Module):
        return from_transform(given)
    require(callable(given), "augment", "an augmentation or a function of (batch, key)", given)
    return Augment(getattr(given, "__qualname__", "function"), {}, given)


def chain(*of: Augment) -> Augment:
    """One augmentation after the other, each with a key of its own."""

    def per_row(batch: Batch, keys: Tensor) -> Batch:
        for index, each in enumerate(of):
            assert each.per_row is not None
            batch = each.per_row(batch, scramble(keys + index))
        return batch

    def per_client(batch: Batch, key: Tensor) -> Batch:
        for index, each in enumerate(of):
            batch = each.one(batch, scramble(key + index))
        return batch

    rows = per_row if all(each.per_row is not None for each in of) else None
    return Augment("chain", {"of": of}, per_client, rows)


def random_crop(padding: int = 4) -> Augment:
    """Images shifted by up to `padding` pixels in both directions; what comes in at the edges is 0."""
    require(is_count(padding), "padding", "an int >= 1", padding)

    def crop(x: Tensor, keys: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        shifts = (uniform_rows(keys, 2) * (2 * padding + 1)).long()
        # All windows of an image, as a view: one index an image copies whole rows, which takes a fifth of the time that
        # an index a pixel takes.
        windows = pad(x, (padding,) * 4).unfold(-2, height, 1).unfold(-2, width, 1)
        by_shift = windows.movedim((-4, -3), (1, 2))
        return by_shift[torch.arange(len(x), device=x.device), shifts[:, 0], shifts[:, 1]]

    return _on_images("random_crop", {"padding": padding}, crop)


def random_flip(probability: float = 0.5) -> Augment:
    """Images mirrored left to right with this probability."""
    require(is_number(probability) and 0 <= probability <= 1, "probability", "a number in [0, 1]", probability)

    def flip(x: Tensor, keys: Tensor) -> Tensor:
        chosen = uniform_rows(keys, 1)[:, 0] < probability
        return torch.where(_per_image(chosen, x), x.flip(-1), x)

    return _on_images("random_flip", {"probability": probability}, flip)


def colour(brightness: float = 0.2, contrast: float = 0.2, saturation: float = 0.2) -> Augment:
    """Brightness, contrast and saturation each multiplied by a number in [1 - s, 1 + s]."""
    strengths = {"brightness": brightness, "contrast": contrast, "saturation": saturation}
    for name, value in strengths.items():
        require(is_number(value) and 0 <= value <= 1, name, "a number in [0, 1]", value)

    def change(x: Tensor, keys: Tensor) -> Tensor:
        draws = (2 * uniform_rows(keys, 3) - 1).to(x.dtype)
        factors = [_per_image(1 + s * draws[:, i], x) for i, s in enumerate(strengths.values())]
        x = x * factors[0]
        mean = x.mean(dim=tuple(range(1, x.dim())), keepdim=True)
        x = mean + factors[1] * (x - mean)
        if x.dim() == 4 and x.shape[1] == 3:
            grey = x.mean(dim=1, keepdim=True)
            x = grey + factors[2] * (x - grey)
        return x

    return _on_images("colour", strengths, change)


def noise(deviation: float = 0.1) -> Augment:
    """Gaussian noise of this standard deviation on every number."""
    require(is_number(deviation) and deviation >= 0, "deviation", "a number >= 0", deviation)

    def add(x: Tensor, keys: Tensor) -> Tensor:
        count = x[0].numel()
        draws = uniform_rows(keys, 2 * count)
        # Box-Muller; 1 - u lies in (0, 1], so the logarithm is finite.
        radius = torch.sqrt(-2 * torch.log1p(-draws[:, :count]))
        normal = radius * torch.cos(2 * torch.pi * draws[:, count:])
        return x + (deviation * normal).to(x.dtype).view_as(x)

    return _on_rows("noise", {"deviation": deviation}, add)


def mixup(alpha: float = 0.2) -> Augment:
    """Every row mixed with another of its batch: lam x + (1 - lam) x', lam ~ Beta(alpha, alpha) (Zhang et al., 2018).

    The loss is mixed alike, lam loss(y) + (1 - lam) loss(y'): so it works for every task that has one loss per row.
    """
    require(is_number(alpha) and alpha > 0, "alpha", "a number > 0", alpha)

    def mix(batch: Batch, key: Tensor) -> Batch:
        if "y" not in batch:
            raise ConfigError("mixup needs targets. Got data without a column 'y'.")
        drawn = np.random.Generator(np.random.PCG64(int(key) & (2**63 - 1)))
        share = float(drawn.beta(alpha, alpha))
        order = torch.from_numpy(drawn.permutation(len(batch["y"]))).to(batch["y"].device)
        mixed = {
            name: share * value + (1 - share) * value[order] if value.is_floating_point() and name != "y" else value
            for name, value in batch.items()
        }
        shares = torch.full((len(order),), share, dtype=torch.float64, device=order.device)
        return {**mixed, "_other_y": batch["y"][order], "_share": shares}

    return Augment("mixup", {"alpha": alpha}, mix)


def from_transform(transform: Callable[[Tensor], Tensor]) -> Augment:
    """A transform of one image that draws from torch's, numpy's or Python's own generators, such as torchvision's v2.

    Each row's generators are seeded from its key, and put back afterwards. An `nn.Module`, as torchvision's transforms
    are, may be given as `augment` without this function.
    """
    require(callable(transform), "transform", "a function of one image", transform)

    def per_client(batch: Batch, key: Tensor) -> Batch:
        if _INPUT not in batch:
            raise ConfigError(f"{name} changes the column 'x'. Got columns {', '.join(batch)}.")
        seeds = row_keys(key.reshape(1), len(batch[_INPUT]))[0].tolist()
        with generators_kept():
            rows = [_seeded_call(transform, image, seed) for image, seed in zip(batch[_INPUT], seeds, strict=True)]
        found = {tuple(row.shape) if isinstance(row, Tensor) else type(row).__name__ for row in rows}
        if len(found) != 1 or not isinstance(rows[0], Tensor):
            raise ConfigError(f"{name} must return tensors of one shape. Got {' and '.join(sorted(map(str, found)))}.")
        return {**batch, _INPUT: torch.stack(rows).to(batch[_INPUT].dtype)}

    name = f"the transform {getattr(transform, '__qualname__', type(transform).__name__)}"
    return Augment("from_transform", {"transform": transform}, per_client)


def _seeded_call(transform: Callable[[Tensor], Tensor], image: Tensor, seed: int) -> Tensor:
    seed_generators(seed)
    return transform(image)


def _on_rows(name: str, settings: dict[str, Any], change: Callable[[Tensor, Tensor], Tensor]) -> Augment:
    """An augmentation of the column `x`, row by row."""

    def per_row(batch: Batch, keys: Tensor) -> Batch:
        if _INPUT not in batch:
            raise ConfigError(f"{name} changes the column 'x'. Got columns {', '.join(batch)}.")
        return {**batch, _INPUT: change(batch[_INPUT], keys)}

    def per_client(batch: Batch, key: Tensor) -> Batch:
        return per_row(batch, row_keys(key.reshape(1), len(batch[_INPUT]))[0])

    return Augment(name, settings, per_client, per_row)


def _on_images(name: str, settings: dict[str, Any], change: Callable[[Tensor, Tensor], Tensor]) -> Augment:
    def checked(x: Tensor, keys: Tensor) -> Tensor:
        if x.dim() not in (3, 4):
            rule = "images of (height, width) or (channels, height, width)"
            raise ConfigError(f"{name} needs {rule}. Got rows of {x.dim() - 1} dimensions.")
        return change(x, keys)

    return _on_rows(name, settings, checked)


def _per_image(values: Tensor, images: Tensor) -> Tensor:
    return values.view(-1, *[1] * (images.dim() - 1))


def _filled(value: Tensor, width: int) -> Tensor:
    """The rows, then the first one again up to the width: the padding that a batch had before."""
    return value if len(value) == width else torch.cat([value, value[:1].expand(width - len(value), *value.shape[1:])])


AUGMENTATIONS: dict[str, Callable[..., Augment]] = {
    "random_crop": random_crop,
    "random_flip": random_flip,
    "colour": colour,
    "noise": noise,
    "mixup": mixup,
}
