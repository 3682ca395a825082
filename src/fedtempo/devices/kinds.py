"""Kinds of devices: all alike, log-normal speeds, classes of devices, and phones."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedtempo.devices.fleet import Devices, uniforms
from fedtempo.devices.traits import Traits, traits_of
from fedtempo.errors import is_number, require, takes_numbers

MOST_SIGMA = 10.0
"""Beyond this a log-normal number may be infinite."""


@takes_numbers
def constant(
    seconds_per_step: float = 0.0,
    flops_per_second: float | None = None,
    down: float | None = None,
    up: float | None = None,
    latency: float = 0.0,
    joules_per_step: float = 0.0,
    joules_per_byte: float = 0.0,
) -> Devices:
    """Devices that are all alike; a speed or a bandwidth that is left out takes no time.

    >>> constant(seconds_per_step=0.1, up=1e6)
    constant(seconds_per_step=0.1, up=1000000.0)
    """
    given = _given(seconds_per_step, flops_per_second, down, up, latency, joules_per_step, joules_per_byte)
    traits_of(given, 1)
    return Devices("constant", given, lambda seed, clients: traits_of(given, len(clients)))


@takes_numbers
def log_normal(
    seconds_per_step: float = 0.0,
    sigma: float = 0.5,
    flops_per_second: float | None = None,
    down: float | None = None,
    up: float | None = None,
    bandwidth_sigma: float = 0.0,
    latency: float = 0.0,
    joules_per_step: float = 0.0,
    joules_per_byte: float = 0.0,
) -> Devices:
    """Speeds and bandwidths that are log-normal over clients: the numbers given are medians, the sigmas of logarithms.

    A slow device is slow in every round. A step on a device that is twice as slow takes twice the energy.

    >>> log_normal(seconds_per_step=0.1).traits(seed=0, clients=[0, 1, 2]).seconds_per_step.round(2).tolist()
    [0.12, 0.09, 0.06]
    """
    for name, value in (("sigma", sigma), ("bandwidth_sigma", bandwidth_sigma)):
        require(is_number(value) and 0 <= value <= MOST_SIGMA, name, f"a number in [0, {MOST_SIGMA:g}]", value)
    given = _given(seconds_per_step, flops_per_second, down, up, latency, joules_per_step, joules_per_byte)
    traits_of(given, 1)

    def draw(seed: int, clients: np.ndarray) -> Traits:
        slower = np.exp(sigma * _normal(seed, clients, "speed"))
        narrower = np.exp(bandwidth_sigma * _normal(seed, clients, "bandwidth"))
        traits = traits_of(given, len(clients))
        return traits._replace(
            seconds_per_step=traits.seconds_per_step * slower,
            flops_per_second=traits.flops_per_second / slower,
            joules_per_step=traits.joules_per_step * slower,
            down=traits.down / narrower,
            up=traits.up / narrower,
        )

    return Devices("log_normal", {**given, "sigma": sigma, "bandwidth_sigma": bandwidth_sigma}, draw)


def classes(of: Sequence[tuple[float, Devices]]) -> Devices:
    """Several kinds of devices, each with its share of the clients. The shares are divided by their sum.

    >>> fleet = classes([(0.5, constant(seconds_per_step=1.0)), (0.5, constant(seconds_per_step=4.0))])
    >>> sorted(set(fleet.traits(0, range(20)).seconds_per_step.tolist()))
    [1.0, 4.0]
    """
    pairs = list(of) if isinstance(of, (list, tuple)) else []
    form = bool(pairs) and all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs)
    require(form, "of", "one or more pairs of a share and devices", of)
    for share, kind in pairs:
        require(is_number(share) and share > 0, "of", "shares above 0", share)
        rule = "pairs of a share and devices without an availability of their own"
        require(isinstance(kind, Devices) and kind.always_there, "of", rule, kind)
    # Devices of a class are drawn only for its own clients, so a large fleet costs no more than its clients.
    edges = np.cumsum([share for share, _ in pairs]) / sum(share for share, _ in pairs)

    def draw(seed: int, clients: np.ndarray) -> Traits:
        (drawn,) = uniforms(seed, clients, 1, "class")
        members = np.minimum(np.searchsorted(edges, drawn, side="right"), len(pairs) - 1)
        columns = [np.empty(len(clients)) for _ in Traits._fields]
        for place, (_, kind) in enumerate(pairs):
            mine = np.flatnonzero(members == place)
            for column, values in zip(columns, kind.draw(seed, clients[mine]), strict=True):
                column[mine] = values
        return Traits(*columns)

    kinds = [kind for _, kind in pairs]
    return Devices(
        "classes",
        {"of": [(float(share), kind) for share, kind in pairs]},
        draw,
        has_hours=any(kind.has_hours for kind in kinds),
        content=kinds,
    )


@takes_numbers
def phones(seconds_per_step: float = 0.1, joules_per_step: float = 0.2) -> Devices:
    """Three classes of phones: a quarter fast, half of them middling, a quarter slow; speeds vary inside a class.

    The numbers are those of a middling phone. A fast one takes half as long, a slow one three times. Bandwidths are 4,
    2 and 0.5 MB/s down and a quarter of that up. These are round figures for experiments and no measurement of any
    phone: use `classes` or `trace` for your own.
    """

    def kind(share: float, slower: float, bandwidth: float) -> tuple[float, Devices]:
        return share, log_normal(
            seconds_per_step=seconds_per_step * slower,
            sigma=0.25,
            down=bandwidth,
            up=bandwidth / 4,
            bandwidth_sigma=0.5,
            latency=0.05,
            joules_per_step=joules_per_step * math.sqrt(slower),
            joules_per_byte=5e-7,
        )

    three = classes([kind(0.25, 0.5, 4e6), kind(0.5, 1.0, 2e6), kind(0.25, 3.0, 0.5e6)])
    settings = {"seconds_per_step": seconds_per_step, "joules_per_step": joules_per_step}
    return Devices("phones", settings, three.draw)


def _given(
    seconds_per_step: float,
    flops_per_second: float | None,
    down: float | None,
    up: float | None,
    latency: float,
    joules_per_step: float,
    joules_per_byte: float,
) -> dict[str, float]:
    """The traits that were given, each a number."""
    named = {
        "seconds_per_step": seconds_per_step,
        "flops_per_second": flops_per_second,
        "down": down,
        "up": up,
        "latency": latency,
        "joules_per_step": joules_per_step,
        "joules_per_byte": joules_per_byte,
    }
    one = flops_per_second is None or seconds_per_step == 0
    require(one, "flops_per_second", "left out where seconds_per_step is given", flops_per_second)
    for name, value in named.items():
        require(value is None or is_number(value), name, "a finite number", value)
    return {name: float(value) for name, value in named.items() if value is not None and value != 0}


def _normal(seed: int, clients: np.ndarray, purpose: str) -> np.ndarray:
    """A standard normal number per client (Box and Muller)."""
    first, second = uniforms(seed, clients, 2, purpose)
    return np.asarray(np.sqrt(-2 * np.log(first)) * np.cos(2 * np.pi * second))
