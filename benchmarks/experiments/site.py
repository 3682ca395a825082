"""One network and all rows in one process: loads weights, takes steps, scores. In plain torch, or lean."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.experiments.plan import Experiment, first_network

Tensors = dict[str, Tensor]
Adjust = Callable[[list[Tensor], list[Tensor]], None]
"""(gradients, parameters): changes the gradients in place before a step."""


def as_tensor(array: np.ndarray) -> Tensor:
    """A tensor on the same memory; torch warns about read-only maps, which nobody writes to here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.from_numpy(array)


class Site:
    """What a process keeps from client to client.

    `lean` is a loop's best: gradients without a tape on the parameters, one fused update for all tensors, channels
    last. Otherwise it is what tutorials have: `backward` and `torch.optim.SGD`.
    """

    def __init__(self, experiment: Experiment, columns: Sequence[np.ndarray], lean: bool) -> None:
        self.experiment, self.lean = experiment, lean
        self.x, self.y = (as_tensor(column) for column in columns)
        self.network = first_network(experiment)
        self.format = torch.channels_last if lean and self.x.dim() == 4 else torch.contiguous_format
        if lean:
            self.network.to(memory_format=torch.channels_last)
        self.parameters = dict(self.network.named_parameters())
        floats = {n: b for n, b in self.network.named_buffers() if b.is_floating_point()}
        self.trained = [n for n, p in self.parameters.items() if p.requires_grad]
        self.moving = {**{n: self.parameters[n] for n in self.trained}, **floats}
        """What training changes: trained parameters and the running means of BatchNorm."""
        self.first = self.copied(list(self.moving))
        """The tensors before any training."""
        self.random = torch.Generator().manual_seed(0)

    def names(self, part: str) -> list[str]:
        """The trained parameters of a part of the network: "all", "body" or "head"."""
        return [n for n in self.trained if part == "all" or n.startswith(f"{part}.")]

    @torch.no_grad()
    def load(self, tensors: Tensors) -> None:
        """Write these tensors into the network."""
        if tensors:
            torch._foreach_copy_([self.moving[n] for n in tensors], list(tensors.values()))

    @torch.no_grad()
    def copied(self, names: Sequence[str]) -> Tensors:
        """Copies of these tensors as they are now."""
        return {n: self.moving[n].detach().clone() for n in names}

    def rows(self, client: int, part: str) -> tuple[Tensor, Tensor]:
        """A client's training or test rows."""
        e = self.experiment
        start = client * e.rows + (e.train if part == "test" else 0)
        stop = start + (e.test if part == "test" else e.train)
        return self.x[start:stop], self.y[start:stop]

    def batches(self, client: int, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
        """So many batches of a client's training rows, in their order, from the first one on."""
        x, y = self.rows(client, "train")
        e = self.experiment
        for step in range(steps):
            place = step * e.batch % e.train
            mine = x[place : place + e.batch]
            if e.augments:
                mine = self.augmented(mine)
            yield mine.contiguous(memory_format=self.format), y[place : place + e.batch]

    def augmented(self, x: Tensor) -> Tensor:
        """Images shifted by up to four pixels, half of them mirrored."""
        rows, _, height, width = x.shape
        shifts = torch.randint(0, 9, (rows, 2), generator=self.random)
        down = (shifts[:, :1] + torch.arange(height))[:, None, :, None]
        right = (shifts[:, 1:] + torch.arange(width))[:, None, None, :]
        mirrored = torch.rand(rows, 1, 1, 1, generator=self.random) < 0.5
        right = torch.where(mirrored, right.flip(-1), right)
        padded = F.pad(x, (4, 4, 4, 4))
        return padded[torch.arange(rows)[:, None, None, None], torch.arange(x.shape[1])[:, None, None], down, right]

    def descend(
        self, names: list[str], batches: Iterator[tuple[Tensor, Tensor]], lr: float, adjust: Adjust | None = None
    ) -> None:
        """One SGD step per batch on these parameters."""
        self.network.train()
        moved = [self.parameters[n] for n in names]
        if self.lean:
            self._lean(moved, batches, lr, adjust)
            return
        self._only(names)
        optimizer = torch.optim.SGD(moved, lr=lr)
        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(self.network(x), y).backward()
            if adjust is not None:
                with torch.no_grad():
                    adjust([p.grad for p in moved if p.grad is not None], moved)
            optimizer.step()
        self._only(self.trained)

    def _lean(
        self, moved: list[Tensor], batches: Iterator[tuple[Tensor, Tensor]], lr: float, adjust: Adjust | None
    ) -> None:
        for x, y in batches:
            found = list(torch.autograd.grad(F.cross_entropy(self.network(x), y), moved))
            with torch.no_grad():
                if adjust is not None:
                    adjust(found, moved)
                torch._foreach_add_(moved, found, alpha=-lr)

    def _only(self, names: list[str]) -> None:
        """Gradients for these parameters and no others."""
        wanted = set(names)
        for name in self.trained:
            self.parameters[name].requires_grad_(name in wanted)

    def gradients(self, x: Tensor, y: Tensor) -> Tensors:
        """Of the loss on these rows, for all trained parameters."""
        moved = [self.parameters[n] for n in self.trained]
        found = torch.autograd.grad(F.cross_entropy(self.network(x), y), moved)
        return dict(zip(self.trained, found, strict=True))

    @torch.no_grad()
    def score(self, client: int) -> float:
        """The accuracy on a client's test rows."""
        self.network.eval()
        x, y = self.rows(client, "test")
        scores = self.network(x.contiguous(memory_format=self.format))
        return float((scores.argmax(1) == y).float().mean())


def packed(tensors: Tensors) -> Tensor:
    """All tensors as one vector, for frameworks that send vectors."""
    return torch.cat([t.detach().reshape(-1) for t in tensors.values()])


def unpacked(vector: Tensor, like: Tensors) -> Tensors:
    """The tensors of a vector."""
    parts = vector.split([t.numel() for t in like.values()])
    return {n: part.view(t.shape) for (n, t), part in zip(like.items(), parts, strict=True)}
