"""Wrong experiment files: refused before any data is loaded, in one line that names field, rule and value."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest

import fedtempo as ft
from fedtempo.config import experiment_file as files
from fedtempo.config import read
from fedtempo.config.schema import DataSection
from tests.faults.spoiled_file import MISSING, SMALL, changed, refusal


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checking a file never loads data."""

    def loads(section: DataSection) -> None:
        pytest.fail("data were loaded before the file was checked")

    monkeypatch.setattr(files, "make_data", loads)


# ---------------------------------------------------------------- wrong types and values, wherever they stand

WRONG: dict[str, list[Any]] = {
    "full_batch": [0, 1, "yes"],
    "batches": ["epoch", 1, []],
    "loss": ["mse", 1],
    "dtype": ["float16", "float", 32],
    "device": ["cuda:99", "tpu", "", "meta", 0],
    "backend": ["paralel", "", 1],
    "data": [5, "digits", [], [{"name": "digits"}]],
    "data.name": ["digit", 1, ["digits"]],
    "data.relabel": [1, "no"],
    "data.split": ["iid", 5, [1]],
    "data.split.name": ["dirichlett", 5],
    "data.split.clients": [0, -1, 1.5, True, "6", [6], {"a": 1}, math.nan],
    "data.verify": ["yes"],
    "model": [5, "mlp"],
    "model.name": ["mlpp", 3],
    "model.inputs": [0, -1, 1.5, True, "64", [64], 2**70],
    "model.hidden": [5, "abc", [0], [1.5], ["a"], {"a": 1}, [[4]]],
    "model.dropout": [-0.1, 1.0, math.nan, "0.1", True],
    "algorithm": [5, "fedavg", []],
    "algorithm.name": ["fedavgg", 1],
    "algorithm.lr": [-0.1, math.nan, math.inf, "fast", [0.1], {}, {"rate": 1}, True, MISSING],
    "algorithm.beta": [-0.1, 1.1, math.nan, "0.5", [0.5], True, {"schedule": "constant", "value": 0.5}],
    "algorithm.steps": [0, -1, 0.5, [1], "ten", True, math.nan, MISSING],
    "algorithm.server_lr": [-1, "x", {"schedule": "per_round"}],
    "algorithm.weighting": ["equal", 1, ["uniform"]],
    "algorithm.decay": ["cubic", 5, [], ["a"], {"a": 1}],
    "algorithm.per": ["batch", 1],
    "algorithm.around": [{"name": "fedavg", "lr": 0.1, "steps": 1}, 5],
    "evaluation": [5, True, "off"],
    "evaluation.trains": ["boddy", 1],
    "evaluation.decays": [1, "no"],
}


@pytest.mark.parametrize(("field", "value"), [(f, v) for f, values in WRONG.items() for v in values])
def test_a_wrong_value_is_refused_and_named(field: str, value: Any) -> None:
    message = refusal(changed(field, value))
    table, _, key = field.rpartition(".")
    assert message.startswith((field, f"{table} ")), message
    assert key in message or "cannot be made from these settings" in message


MISSPELT = {
    "coohrt": "cohort",
    "data.new_client": "new_clients",
    "data.splt": "split",
    "data.split.client": "clients",
    "model.hiden": "hidden",
    "algorithm.betta": "beta",
    "algorithm.weigting": "weighting",
    "evaluation.evry": "evaluation.every",
}


@pytest.mark.parametrize("field", MISSPELT)
def test_a_misspelt_key_gets_the_nearest_known_one(field: str) -> None:
    message = refusal(changed(field, 1))
    assert field.rsplit(".", maxsplit=1)[-1] in message
    assert f"Did you mean {MISSPELT[field]!r}?" in message


@pytest.mark.parametrize("table", ["data", "model", "algorithm"])
def test_a_misspelt_table_gets_the_nearest_known_one(table: str) -> None:
    values = copy.deepcopy(SMALL)
    values[table + "s"] = values.pop(table)
    assert f"'{table}s' is not known. Did you mean {table!r}?" in refusal(values)


def test_a_misspelt_name_key_gets_the_right_one() -> None:
    values = changed("model.name", MISSING)
    values["model"]["nmae"] = "mlp"
    assert refusal(values) == "setting 'model.nmae' is not known. Did you mean 'model.name'?"


# ---------------------------------------------------------------- wrappers, schedules and selectors

BACKBONE = {"name": "fedavg", "lr": 0.1, "steps": 2}
NAR = {"name": "fednar", "weight_decay": 0.1, "max_norm": 1.0}
ALGORITHMS: dict[str, tuple[dict[str, Any], str]] = {
    "no backbone": (NAR, "algorithm.around must be"),
    "a backbone by name": ({**NAR, "around": "fedavg"}, "algorithm.around must be"),
    "a backbone called algorithm": ({**NAR, "algorithm": BACKBONE}, "Did you mean 'around'?|Known: around"),
    "a misspelt backbone": ({**NAR, "around": {**BACKBONE, "name": "fedag"}}, "algorithm.around.name 'fedag'"),
    "a nameless backbone": ({**NAR, "around": {"lr": 0.1}}, "algorithm.around.name None"),
    "a backbone named by a list": ({**NAR, "around": {"name": [1]}}, r"algorithm.around.name \[1\]"),
    "a misspelt key of a backbone": ({**NAR, "around": {**BACKBONE, "stepz": 1}}, "Did you mean 'steps'?"),
    "a wrong value of a backbone": ({**NAR, "around": {**BACKBONE, "lr": -1}}, "algorithm.around.lr must be"),
    "an unknown schedule": ({**BACKBONE, "lr": {"schedule": "per_ruond"}}, "Did you mean 'per_round'?"),
    "a schedule named by a number": ({**BACKBONE, "lr": {"schedule": 5}}, "algorithm.lr.schedule 5"),
    "a misspelt key of a schedule": (
        {**BACKBONE, "lr": {"schedule": "per_round", "value": 1.0, "factr": 0.5}},
        "Did you mean 'factor'?",
    ),
    "a schedule without its value": ({**BACKBONE, "lr": {"schedule": "per_round"}}, "algorithm.lr.value must be given"),
    "a schedule with a string": (
        {**BACKBONE, "lr": {"schedule": "per_round", "value": "a", "factor": 0.5}},
        "algorithm.lr.value must be a finite number",
    ),
    "a negative factor": (
        {**BACKBONE, "lr": {"schedule": "per_round", "value": 1.0, "factor": -0.5}},
        "algorithm.lr.factor must be",
    ),
    "a piecewise schedule without rounds": (
        {**BACKBONE, "lr": {"schedule": "piecewise", "value": 1.0, "steps": 5}},
        "algorithm.lr.steps must be a table",
    ),
    "a piecewise schedule with words": (
        {**BACKBONE, "lr": {"schedule": "piecewise", "value": 1.0, "steps": {"soon": 0.1}}},
        "algorithm.lr",
    ),
    "a sequence of words": ({**BACKBONE, "lr": {"schedule": "sequence", "values": "abc"}}, "algorithm.lr.values must"),
    "a product of nothing": ({**BACKBONE, "lr": {"schedule": "product", "of": []}}, "algorithm.lr.of must be"),
    "a product of a word": ({**BACKBONE, "lr": {"schedule": "product", "of": "x"}}, "algorithm.lr.of must be"),
    "a product of words": ({**BACKBONE, "lr": {"schedule": "product", "of": ["x"]}}, "algorithm.lr.of must be"),
    "a product with more": ({**BACKBONE, "lr": {"schedule": "product", "off": [1]}}, "Did you mean 'of'?"),
    "a selector by name": ({"name": "fedper", "lr": 0.1, "steps": 1, "head": "head"}, "submodule = "),
    "a selector of a number": (
        {"name": "fedper", "lr": 0.1, "steps": 1, "head": {"submodule": 5}},
        "algorithm.head.submodule must be",
    ),
    "two selectors": (
        {"name": "fedper", "lr": 0.1, "steps": 1, "head": {"submodule": "head", "matching": "*"}},
        "algorithm.head must be",
    ),
    "an unknown selector": (
        {"name": "fedper", "lr": 0.1, "steps": 1, "head": {"submodul": "head"}},
        "algorithm.head must be",
    ),
}


@pytest.mark.parametrize("case", ALGORITHMS)
def test_wrong_algorithms(case: str) -> None:
    section, expected = ALGORITHMS[case]
    message = refusal(changed("algorithm", section))
    assert any(part in message.replace("\\", "") for part in expected.replace("\\", "").split("|")), message


@pytest.mark.parametrize(
    "table", [{}, {"a": 1}, {"schedule": "nope"}, {"schedule": "per_round"}, {"schedule": "constant", "value": "x"}]
)
def test_a_wrong_cohort_schedule(table: dict[str, Any]) -> None:
    assert refusal(changed("cohort", table)).startswith("cohort")


def test_steps_or_epochs_of_the_evaluation_not_both() -> None:
    values = changed("evaluation.steps", 1)
    values["evaluation"]["epochs"] = 1
    assert refusal(values).startswith("evaluation must be given steps or epochs")


def test_validation_and_test_leave_rows_to_train_on() -> None:
    values = changed("data.validation", 0.5)
    values["data"]["test"] = 0.5
    assert refusal(values).startswith("data.validation + data.test must be below 1")


# ---------------------------------------------------------------- files that are no experiment

HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "binary": bytes(range(256)),
    "not UTF-8": b"rounds = '\xff'",
    "no TOML": b"rounds: 5\n",
    "JSON": b'{"rounds": 5}',
    "a key twice": b"rounds = 1\nrounds = 2\n",
    "a table twice": b"[data]\nname='digits'\n[data]\nname='digits'\n",
    "a value as a table": b"rounds = 1\n[rounds.x]\ny = 1\n",
    "an endless list": b"a = " + b"[" * 100_000,
    "tables in tables": b"[" + b".".join([b"a"] * 5_000) + b"]\nb = 1\n",
    "wrappers in wrappers": b"rounds = 1\n[algorithm" + b".around" * 100 + b"]\nname = 'fednar'\n",
    "a number of 5000 digits": b"rounds = " + b"9" * 5_000,
    "a NUL": b"rounds = 1\x00",
    "a key of a megabyte": b"a" * 999_000 + b" = 1",
    "more than a megabyte": b"# " + b"x" * 1_000_001,
    "a date": b"rounds = 2026-01-01",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_one_short_line(case: str, tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_bytes(HOSTILE[case])
    with pytest.raises(ft.ConfigError) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("path", ["nowhere.toml", ".", "x\x00y", "/dev/zero"])
def test_a_file_that_cannot_be_read(path: str, tmp_path: Path) -> None:
    with pytest.raises(ft.ConfigError, match="experiment file must be"):
        read(tmp_path / path)


@pytest.mark.parametrize("override", ["", "rounds", "=5", ".=5", "a..b=1", ".rounds=1", "rounds.=1", " =1"])
def test_a_malformed_override(override: str, tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text("rounds = 1")
    with pytest.raises(ft.ConfigError, match=r"--set must be written a\.b=value"):
        read(path, [override])


def test_an_override_leads_into_tables_only(tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text("rounds = 1")
    with pytest.raises(ft.ConfigError, match="must lead into a table"):
        read(path, ["rounds.x=1"])


def test_an_override_is_one_value(tmp_path: Path) -> None:
    """A line break in a value does not smuggle in a second setting."""
    path = tmp_path / "experiment.toml"
    path.write_text("rounds = 1")
    with pytest.raises(ft.ConfigError, match=r"rounds must be an int.*seed"):
        read(path, ["rounds=5\nseed=3"])


def test_a_long_value_is_cut_short() -> None:
    assert len(refusal(changed("rounds", "x" * 100_000))) < 400
