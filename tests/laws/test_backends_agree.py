"""Serial and vectorised are the same computation: 1e-12 in float64, for every algorithm and model."""

from __future__ import annotations

import pytest
import torch

import fedtempo as ft
from fedtempo.contracts import distance
from tests import zoo
from tests.slow import slow_but


def run(kind: str, name: str, backend: str, **settings: object) -> ft.Result:
    defaults = {
        "rounds": 4,
        "cohort": 4,
        "batch_size": 4,
        "seed": 1,
        "block": 3,
        "evaluation": ft.Evaluation(every=4),
    }
    return ft.run(
        model=zoo.model(kind),
        data=zoo.data(kind),
        algorithm=zoo.EVERYTHING[name],
        dtype=torch.float64,
        backend=backend,
        **{**defaults, **settings},
    )


FIRST = {algorithm.name: name for name, algorithm in reversed(zoo.ALGORITHMS.items())}.values()
"""One example of every algorithm."""
ADAPTED = [("lora", name) for name in zoo.LORA]
PAIRS = [*((kind, name) for name in zoo.ALGORITHMS for kind in zoo.SHAPES), *ADAPTED]
OTHERS = [(kind, name) for name in zoo.MECHANISMS for kind in zoo.SHAPES if kind != "mlp"]
OFTEN = [
    *((kind, name) for kind, name in PAIRS if kind == "mlp" and name in FIRST),
    *OTHERS[::2],
    ("batchnorm", "fedbn"),
    *ADAPTED,
]
"""Every algorithm on one kind of model, and every mechanism on two others: they take turns."""


@pytest.mark.parametrize("pair", slow_but(OFTEN, PAIRS, "its mechanism and its model are each tried in other pairs"))
def test_serial_equals_vectorised(pair: tuple[str, str]) -> None:
    kind, name = pair
    # BatchNorm over two or three rows multiplies rounding errors; over all rows it does not.
    batch_size = None if kind == "batchnorm" else 4
    one, many = (run(kind, name, backend, batch_size=batch_size) for backend in ("serial", "vectorised"))
    assert distance(one, many) <= 1e-12
    for group, metrics in one.scores.summary().items():
        other = many.scores.summary()[group]
        assert metrics["loss"]["mean"] == pytest.approx(other["loss"]["mean"], rel=1e-9)
    assert one.costs == many.costs
    assert [r.measurements.get("clipped_steps") for r in one.history] == [
        r.measurements.get("clipped_steps") for r in many.history
    ]


@pytest.mark.parametrize("settings", [{"batches": "replace"}, {"batch_size": None}, {"block": 1}, {"block": 100}])
@pytest.mark.parametrize("name", ["fedavg", "feddecay per epoch", "fedrep", "fedem"])
def test_serial_equals_vectorised_however_batches_are_drawn(name: str, settings: dict[str, object]) -> None:
    one, many = (run("mlp", name, backend, **settings) for backend in ("serial", "vectorised"))
    assert distance(one, many) <= 1e-12


@pytest.mark.parametrize("kind", ["mlp", "gru"])
def test_one_round_in_single_precision_is_close(kind: str) -> None:
    settings = {"model": zoo.model(kind), "data": zoo.data(kind), "algorithm": zoo.ALGORITHMS["feddecay"]}
    runs = [ft.run(**settings, rounds=1, batch_size=4, backend=b, evaluation=None) for b in ("serial", "vectorised")]
    assert distance(*runs) <= 1e-5
