"""Every number of an experiment file at its edges: accepted, or refused by name before any data is loaded."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic.fields import FieldInfo

from fedtempo.config import parse
from fedtempo.config.schema import (
    SECTIONS,
    AdmissionSection,
    DataSection,
    EvaluationSection,
    ExperimentFile,
    FaultsSection,
)
from tests.faults.spoiled_file import changed, refusal


def numeric_fields() -> Iterator[tuple[str, FieldInfo]]:
    """Every field of the pydantic models that takes a number."""
    places: list[tuple[str, Any]] = [
        ("", ExperimentFile),
        ("data.", DataSection),
        ("evaluation.", EvaluationSection),
        ("admission.", AdmissionSection),
        ("faults.", FaultsSection),
    ]
    for prefix, model in places:
        for name, field in model.model_fields.items():
            kind = str(field.annotation)
            only_words = "Literal" in kind and name != "new_clients"
            if ("int" in kind or "float" in kind) and not only_words and name not in SECTIONS:
                yield prefix + name, field


NUMBERS = dict(numeric_fields())
FAULTS = ("drop", "nan", "infinite", "huge", "misshapen", "renamed", "slow", "kill")
ALLOWED: dict[str, list[Any]] = {
    "rounds": [1, 10**9],
    "cohort": [1, 6, 1.0, 1e-9],
    "batch_size": [1, 10**9],
    "seed": [0, 2**64],
    "workers": [1, 1024],
    "block": [1, 10**9],
    "data.new_clients": [0, 5, 0.0, 0.99],
    "data.validation": [0, 0.0, 0.99],
    "data.test": [0, 0.0, 0.99],
    "data.seed": [0, 2**64],
    "data.min_samples": [1, 10**9],
    "evaluation.every": [1, 10**9],
    "evaluation.users": [1, 10**9],
    "evaluation.patience": [1, 10**9],
    "evaluation.last": [1, 10**9],
    "evaluation.steps": [0, 10**6],
    "evaluation.epochs": [0, 10**6],
    "evaluation.lr": [0, 0.0, 1e300],
    "quorum": [1, 10**9],
    "over_selection": [0, 0.0, 100],
    "deadline": [1e-9, 1, 1e7],
    "worker_timeout": [1e-9, 1, 1e7],
    "ray_gpus": [0, 0.5, 1024],
    "admission.max_norm": [1e-300, 1],
    "admission.max_ratio": [1e-300, 1],
    **{f"faults.{kind}": [0, 0.0, 1] for kind in FAULTS},
    "faults.delay": [0, 60],
    "faults.until": [0, 10**6],
}
BELOW: dict[str, list[Any]] = {
    "cohort": [0, 0.0, -0.5],
    "data.new_clients": [-1, -0.1],
    "admission.max_norm": [0, 0.0],
    "admission.max_ratio": [0, 0.0],
    "deadline": [0, 0.0],
    "worker_timeout": [0, 0.0],
}
ABOVE: dict[str, list[Any]] = {
    "cohort": [1.0000001, 2.0],
    "data.new_clients": [1.0, 1.5],
    "data.validation": [1, 1.0],
    "data.test": [1, 1.0],
    "seed": [],
    "data.seed": [],
    "evaluation.lr": [10**400],
    "workers": [1025],
    "evaluation.steps": [10**6 + 1],
    "evaluation.epochs": [10**6 + 1],
    "over_selection": [101],
    "deadline": [1.1e7],
    "worker_timeout": [1.1e7],
    "ray_gpus": [1025],
    "admission.max_norm": [10**400],
    "admission.max_ratio": [10**400],
    **{f"faults.{kind}": [1.5, 2] for kind in FAULTS},
    "faults.delay": [61],
    "faults.until": [10**6 + 1],
}
NEVER = [True, False, "5", "x", "", math.nan, math.inf, -math.inf, -1, [], [1], {}, {"a": 1}]


def test_every_number_of_the_models_is_tried() -> None:
    assert set(NUMBERS) == set(ALLOWED)


@pytest.mark.parametrize(("field", "value"), [(f, v) for f, values in ALLOWED.items() for v in values])
def test_a_number_at_its_edge_is_accepted(field: str, value: Any) -> None:
    assert parse(changed(field, value)).rounds >= 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (field, value)
        for field, allowed in ALLOWED.items()
        for value in (*NEVER, *BELOW.get(field, [allowed[0] - 1]), *ABOVE.get(field, [10**9 + 1]))
    ],
)
def test_a_number_beyond_its_edge_is_refused(field: str, value: Any) -> None:
    message = refusal(changed(field, value))
    assert message.startswith(field + (" must be " if value != {"a": 1} and value != {} else ""))
