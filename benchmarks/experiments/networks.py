"""The networks of the experiments in plain torch, so that every framework's environment can load them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Split(nn.Module):
    """`head(body(x))`."""

    def __init__(self, body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.body, self.head = body, head

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def feddecay_cnn() -> nn.Module:
    """FedDecay's FEMNIST network: two padded 5x5 convolutions with BatchNorm, 2,048 hidden units, 62 outputs."""
    body = nn.Sequential(
        nn.Unflatten(1, (1, 28)),
        *(nn.Conv2d(1, 32, 5, padding=2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5, padding=2), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * 7 * 7, 2048), nn.ReLU()),
    )
    return Split(body, nn.Linear(2048, 62))


def small_cnn() -> nn.Module:
    """Two 3x3 convolutions with 4 and 8 channels, 32 hidden units, 10 outputs: 7,098 parameters."""
    body = nn.Sequential(
        nn.Unflatten(1, (1, 28)),
        *(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(200, 32), nn.ReLU()),
    )
    return Split(body, nn.Linear(32, 10))


def perceptron() -> nn.Module:
    """PFLEGO's network for MNIST: 784-200-10."""
    return Split(nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU()), nn.Linear(200, 10))


class Residual(nn.Module):
    """Two 3x3 convolutions with GroupNorm, added to the input."""

    def __init__(self, narrow: int, wide: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(narrow, wide, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(wide, wide, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.GroupNorm(2, wide), nn.GroupNorm(2, wide)])
        same = stride == 1 and narrow == wide
        self.shortcut = nn.Identity() if same else nn.Conv2d(narrow, wide, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(inner)) + self.shortcut(x))


def resnet8() -> nn.Module:
    """A residual network of three blocks with 16, 32 and 64 channels, normalised by groups: 75,034 parameters."""
    blocks = (Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2))
    stem = (nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.GroupNorm(2, 16), nn.ReLU())
    return Split(nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten()), nn.Linear(64, 10))


class LowRank(nn.Module):
    """A frozen linear layer and a trained product of two thin matrices, the second zero at first."""

    def __init__(self, base: nn.Linear, rank: int, scale: float) -> None:
        super().__init__()
        self.base, self.scale = base.requires_grad_(False), scale
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + F.linear(F.linear(x, self.down), self.up) * self.scale


class Attention(nn.Module):
    """Self-attention and two linear layers, each added to its normalised input; adapters on the two projections."""

    def __init__(self, width: int, heads: int, rank: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = LowRank(nn.Linear(width, 3 * width), rank, 2.0)
        self.mix = LowRank(nn.Linear(width, width), rank, 2.0)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.norms.requires_grad_(False)
        self.feed.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.project(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        seen = (query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])).softmax(-1) @ value
        x = x + self.mix(seen.transpose(1, 2).flatten(2))
        return x + self.feed(self.norms[1](x))


class Encoder(nn.Module):
    """Tokens and places, embedded, through the blocks; the mean over places."""

    def __init__(self, tokens: int, length: int, width: int, layers: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(tokens, width), nn.Parameter(0.02 * torch.randn(length, width))
        self.tokens.requires_grad_(False)
        self.places.requires_grad_(False)
        self.blocks = nn.Sequential(*(Attention(width, 4, 4) for _ in range(layers)))

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(self.tokens(x) + self.places).mean(1)


def adapted_transformer() -> nn.Module:
    """A frozen transformer of two blocks of width 64 on 32 tokens; adapters of rank 4 and the head are trained."""
    return Split(Encoder(128, 32, 64, 2), nn.Linear(64, 10))
