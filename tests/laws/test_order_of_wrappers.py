"""Two wrappers do the same in either order, and none is lost around an algorithm whose server does more than a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations

import numpy as np
import pytest

import fedtempo as ft
from fedtempo import algorithms as a
from tests.numbers.single_model.problem import PLANE, SOME, START, run, trace
from tests.slow import slow_but

Wrap = Callable[[ft.Algorithm], ft.Algorithm]


def uneven(now: ft.Now) -> float:
    """Clients of two to five rows take two to five steps."""
    return now.samples


WORK = {"lr": 0.1, "steps": uneven}
BASES: Mapping[str, ft.Algorithm] = {
    "fedavg": a.fedavg(**WORK, weighting="samples"),
    "fedexp": a.fedexp(**WORK),
    "scaffold": a.scaffold(**WORK),
    "feddyn": a.feddyn(**WORK, alpha=0.5),
    "q_fedavg": a.q_fedavg(**WORK, q=2.0),
    "afl": a.afl(**WORK, weights_lr=0.1),
}
WRAPPERS: Mapping[str, Wrap] = {
    "fedhyper_global": lambda x: a.fedhyper_global(x, step=0.5),
    "fedhyper_server": lambda x: a.fedhyper_server(x, step=0.05),
    "fedhyper_client": lambda x: a.fedhyper_client(x, step=0.002),
    "fedlesam": lambda x: a.fedlesam(x, rho=0.2),
    "fedlesam global": lambda x: a.fedlesam(x, rho=0.2, previous="global"),
    "fedinit": lambda x: a.fedinit(x, beta=0.3, sends="displacements"),
    "work_normalised": a.work_normalised,
    "server_decay": lambda x: a.server_decay(x, decay=0.05),
    "with_server": lambda x: a.with_server(x, ft.transforms.momentum(0.5)),
    "delta_sgd": a.delta_sgd,
    "stop_early": lambda x: a.stop_early(x, relative=0.7),
    "fednar": lambda x: a.fednar(x, weight_decay=0.1, max_norm=1.0),
}


def models(algorithm: ft.Algorithm) -> np.ndarray:
    return trace(run(PLANE, algorithm, START, SOME))


def wrapped(base: str, *names: str) -> ft.Algorithm | None:
    """The wrappers around the algorithm, the first one innermost; None where that is refused."""
    algorithm = BASES[base]
    try:
        for name in names:
            algorithm = WRAPPERS[name](algorithm)
    except ft.ConfigError:
        return None
    return algorithm


ALONE = [(base, name) for base in BASES for name in WRAPPERS if wrapped(base, name)]
PAIRS = [
    (base, one, other)
    for base in BASES
    for one, other in combinations(WRAPPERS, 2)
    if wrapped(base, one, other) and wrapped(base, other, one)
]
SERVER = {"fedhyper_global", "fedhyper_server", "fedlesam global", "server_decay", "with_server"}
OFTEN = [
    (base, one, other)
    for base, one, other in PAIRS
    if (base in ("fedexp", "afl") and {one, other} <= SERVER)
    or (base == "fedavg" and (one, other) == ("fedhyper_global", "fedhyper_server"))
    or (base == "scaffold" and (one.startswith("fedlesam") and other == "fedinit"))
]


@pytest.mark.parametrize("case", ALONE, ids="-".join)
def test_every_wrapper_that_is_taken_does_something(case: tuple[str, str]) -> None:
    base, name = case
    algorithm = wrapped(base, name)
    assert algorithm is not None
    assert np.abs(models(algorithm) - models(BASES[base])).max() > 1e-6


@pytest.mark.parametrize("case", slow_but(OFTEN, PAIRS, "the same law for every pair of wrappers"), ids="-".join)
def test_the_order_of_two_wrappers_does_not_matter(case: tuple[str, str, str]) -> None:
    base, one, other = case
    inward, outward = wrapped(base, one, other), wrapped(base, other, one)
    assert inward is not None and outward is not None
    np.testing.assert_allclose(models(inward), models(outward), rtol=1e-9, atol=1e-9)
