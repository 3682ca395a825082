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
        "rounds": 2,
        "cohort": 4,
        "batch_size": 4,
        "seed": 1,
        "block": 3,
        "evaluation": ft.Evaluation(every=2),
    }
    return ft.run(
        model=zoo.model(kind),
        data=zoo.data(kind),
        algorithm=zoo.EVERYTHING[name],
        dtype=torch.float64,
        backend=backend,
        **{**defaults, **settings},
    )


ADAPTED = [("lora", name) for name in zoo.LORA]
PAIRS = [*((kind, name) for name in zoo.ALGORITHMS for kind in zoo.SHAPES), *ADAPTED]
OTHERS = [(kind, name) for name in zoo.MECHANISMS for kind in zoo.SHAPES if kind != "mlp"]
OFTEN = [
    *(("mlp", name) for name in ("four at once", "fedem", "pflego")),
    *OTHERS[::5],
    ("batchnorm", "fedbn"),
    *ADAPTED,
]
"""Most mechanisms on a model of another kind: they take turns. On mlp `test_contracts.py` compares every one of them.

`tests/numbers/` holds every algorithm against numpy every time.
"""


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


WAYS: list[dict[str, object]] = [{"batches": "replace"}, {"batch_size": None}, {"block": 1}, {"block": 100}]
DRAWN = [(name, way) for name in ("fedavg", "feddecay per epoch", "fedrep", "fedem") for way in range(len(WAYS))]
IN_TURN = [case for number, case in enumerate(DRAWN) if number % 5 in (0, 2)]


@pytest.mark.parametrize("case", slow_but(IN_TURN, DRAWN, "its algorithm and its way are each tried in other pairs"))
def test_serial_equals_vectorised_however_batches_are_drawn(case: tuple[str, int]) -> None:
    name, settings = case[0], WAYS[case[1]]
    one, many = (run("mlp", name, backend, **settings) for backend in ("serial", "vectorised"))
    assert distance(one, many) <= 1e-12


@pytest.mark.parametrize("kind", ["mlp", "gru"])
def test_one_round_in_single_precision_is_close(kind: str) -> None:
    settings = {"model": zoo.model(kind), "data": zoo.data(kind), "algorithm": zoo.ALGORITHMS["feddecay"]}
    runs = [ft.run(**settings, rounds=1, batch_size=4, backend=b, evaluation=None) for b in ("serial", "vectorised")]
    assert distance(*runs) <= 1e-5
