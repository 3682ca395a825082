"""Experiment files go out to TOML and come back; overrides and fingerprints."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w

import fedtempo as ft
from fedtempo.config import dump, fingerprint, parse, read, settings_of
from fedtempo.errors import ConfigError
from tests import ROOT
from tests.unit.config.experiments import SMALL, experiment

EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))


def nested(values: dict[str, Any], *path: str) -> Any:
    for key in path:
        values = values[key]
    return values


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_survives_the_round_trip(path: Path) -> None:
    first = read(path)
    again = parse(tomllib.loads(dump(first)))
    assert again == first.model_copy(update={"tune": None})  # a search is no part of the run
    assert dump(again) == dump(first)
    assert fingerprint(again) == fingerprint(first)


def test_a_data_file_is_found_in_the_current_folder_or_beside_the_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    for folder in (there, here):
        folder.mkdir()
    (there / "visits.csv").write_text("who,x,y\n" + "a,1,0\nb,2,1\n" * 4)
    values = experiment(data={"name": "csv", "path": "visits.csv", "client": "who", "target": "y"})
    (there / "run.toml").write_text(tomli_w.dumps(values))
    monkeypatch.chdir(here)
    assert read(there / "run.toml").data.settings["path"] == str(there / "visits.csv")
    (here / "visits.csv").write_text("who,x,y\n")
    assert read(there / "run.toml").data.settings["path"] == "visits.csv"
    monkeypatch.chdir(there)
    assert read(Path("run.toml")).data.settings["path"] == "visits.csv"


def test_a_trace_of_devices_is_found_like_a_data_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    for folder in (there, here):
        folder.mkdir()
    (there / "phones.csv").write_text("seconds_per_step\n1\n2\n")
    traced = {"name": "trace", "path": "phones.csv"}
    (there / "run.toml").write_text(tomli_w.dumps(experiment(devices=traced)))
    monkeypatch.chdir(here)
    found = read(there / "run.toml").devices
    assert found is not None and found.settings["path"] == str(there / "phones.csv")
    classes = {"name": "classes", "of": [{"share": 1.0, **traced}]}
    (there / "classes.toml").write_text(tomli_w.dumps(experiment(devices=classes)))
    mixed = read(there / "classes.toml").devices
    assert mixed is not None and mixed.settings["of"][0]["path"] == str(there / "phones.csv")
    (here / "phones.csv").write_text("seconds_per_step\n3\n")
    nearer = read(there / "run.toml").devices
    assert nearer is not None and nearer.settings["path"] == "phones.csv"


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_bytes(b"\xef\xbb\xbf" + tomli_w.dumps(SMALL).encode())
    assert read(tmp_path / "run.toml") == parse(SMALL)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 2


OVERRIDES = [
    ("algorithm.lr=0.4", ("algorithm", "lr"), 0.4),
    ("rounds = 7", ("rounds",), 7),
    ("backend=serial", ("backend",), "serial"),
    ('backend="serial"', ("backend",), "serial"),
    ("model.hidden=[3, 4]", ("model", "hidden"), [3, 4]),
    ("evaluation.trains=head", ("evaluation", "trains"), "head"),
    ('algorithm.lr={ schedule = "constant", value = 0.5 }', ("algorithm", "lr", "value"), 0.5),
    ("data.split.clients=9", ("data", "split", "clients"), 9),
    ("full_batch=true", ("full_batch",), True),
]


@pytest.mark.parametrize(("override", "path", "value"), OVERRIDES)
def test_overrides(override: str, path: tuple[str, ...], value: Any, tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(tomli_w.dumps(SMALL))
    assert nested(read(file, [override]).model_dump(), *path) == value


def test_the_last_override_wins(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(tomli_w.dumps(SMALL))
    assert read(file, ["rounds=3", "rounds=4"]).rounds == 4


def test_the_fingerprint_knows_values_and_not_their_order() -> None:
    plain = fingerprint(parse(experiment()))
    shuffled = dict(reversed(list(experiment().items())))
    assert fingerprint(parse(shuffled)) == plain
    assert fingerprint(parse(experiment(seed=0))) == plain  # the default, written down
    assert fingerprint(parse(experiment(seed=1))) != plain


def leaves(values: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))
        elif isinstance(value, int):
            yield (*path, key)


@pytest.mark.parametrize("path", list(leaves(SMALL)), ids=".".join)
def test_every_number_is_part_of_the_fingerprint(path: tuple[str, ...]) -> None:
    values = experiment()
    nested(values, *path[:-1])[path[-1]] += 1
    assert fingerprint(parse(values)) != fingerprint(parse(experiment()))


def test_the_cohort_may_be_drawn_client_by_client() -> None:
    """In a file as in Python, there and back again."""
    file = parse(experiment(cohort={"bernoulli": 0.5}))
    assert parse(tomllib.loads(dump(file))) == file
    assert settings_of(file)["cohort"] == ft.cohort.bernoulli(0.5)
    assert len(ft.run(**settings_of(file)).history) == file.rounds


@pytest.mark.parametrize("probability", [0, 1.5, -0.1, "half", True, float("nan"), None, [0.5]])
def test_a_probability_that_is_none_is_refused(probability: object) -> None:
    with pytest.raises(ft.ConfigError, match=r"cohort.bernoulli must be a number in \(0, 1\]"):
        parse(experiment(cohort={"bernoulli": probability}))


def test_the_cohort_may_be_drawn_by_samples() -> None:
    file = parse(
        experiment(
            cohort={"by_samples": 2},
            data={"name": "digits", "split": {"name": "quantity_skew", "clients": 6, "alpha": 0.5}},
        )
    )
    assert parse(tomllib.loads(dump(file))) == file
    settings = settings_of(file)
    in_python = ft.cohort.by_samples(2, settings["data"].sizes())
    assert settings["cohort"] == in_python
    from_file = ft.run(**settings)
    assert from_file.digest() == ft.run(**{**settings, "cohort": in_python}).digest()
    assert all(len(report.clients) == 2 for report in from_file.history)
    for size in (0, 1.5, "two", True, None):
        with pytest.raises(ft.ConfigError, match=r"cohort.by_samples must be an int >= 1 or a fraction in \(0, 1\]"):
            parse(experiment(cohort={"by_samples": size}))


def test_a_misspelt_cohort_is_told_the_forms_of_one() -> None:
    with pytest.raises(ft.ConfigError, match=r"cohort must be .*\{ bernoulli = 0\.1 \}.* Got \{'bernouli': 0\.5\}"):
        parse(experiment(cohort={"bernouli": 0.5}))


PHONES = """
rounds = 2
cohort = 3
deadline = 9.0
partial_work = true
[data]
name = "digits"
split = { name = "iid", clients = 6 }
[model]
name = "softmax_regression"
inputs = 64
outputs = 10
[algorithm]
name = "fedavg"
lr = 0.1
steps = { schedule = "finish_by", seconds = 8.0, most = 5 }
[devices]
name = "classes"
of = [{ share = 1, name = "phones" }, { share = 2, name = "constant", seconds_per_step = 2.0 }]
[devices.availability]
hours = [20, 6]
time_zones = [0, 8]
[asynchrony]
name = "fedbuff"
buffer = 2
"""


def test_devices_and_asynchrony_in_a_file() -> None:
    settings = settings_of(parse(tomllib.loads(PHONES)))
    kinds = [(1, ft.devices.phones()), (2, ft.devices.constant(seconds_per_step=2.0))]
    assert settings["devices"] == ft.devices.classes(kinds).available(hours=(20, 6), time_zones=(0, 8))
    assert settings["asynchrony"] == ft.asynchrony.fedbuff(2) and settings["partial_work"] is True
    again = settings_of(parse(tomllib.loads(dump(parse(tomllib.loads(PHONES))))))
    assert again["devices"] == settings["devices"]
    result = ft.run(**settings)
    assert result.time > 0 and len(result.history) == 2


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('name = "phones"', 'name = "phnes"', "phones"),
        ("seconds_per_step = 2.0", "seconds_per_stp = 2.0", "seconds_per_step"),
        ("share = 1, ", "", "share"),
        ("hours = [20, 6]", "hours = [20]", "devices.availability.hours"),
        ("hours = [20, 6]", "hours = [20, 30]", "hours"),
        ('name = "fedbuff"', 'name = "fedbuf"', "fedbuff"),
        ("buffer = 2", "buffer = 0", "asynchrony.buffer"),
    ],
)
def test_wrong_devices_in_a_file_are_named(old: str, new: str, says: str) -> None:
    assert old in PHONES
    with pytest.raises(ConfigError, match=says):
        parse(tomllib.loads(PHONES.replace(old, new)))
