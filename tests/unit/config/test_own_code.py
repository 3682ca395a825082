"""Own code by name: every place of a file takes it, stored folders import it only where that is allowed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w

import fedtempo as ft
from fedtempo.comparison import entrants_of
from fedtempo.config import own_code, parse, read, read_stored, settings_of, stored_file, train_file
from fedtempo.config.settings import function_or_made
from fedtempo.errors import ConfigError
from fedtempo.report import read_run
from fedtempo.training.loop import drained
from fedtempo.tuning import plan_search, search, space_of
from tests.programs import fedtempo_ended
from tests.slow import slow_but
from tests.unit.config.experiments import SMALL, experiment

MINE = """
import numpy as np
import torch
from torch import nn

import fedtempo as ft


def clients(count: int = 4, noise: float = 0.1):
    rng = np.random.default_rng(0)
    def one():
        x = rng.normal(size=(20, 3)).astype(np.float32)
        return x, (x[:, 0] + noise * rng.normal(size=20) > 0).astype(np.int64)
    return ft.data.FederatedData.from_clients([one() for _ in range(count)], validation=0.2, test=0.2)


def table(rows: int = 120, seed: int = 0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3)).astype(np.float32)
    return ft.data.Table("mine", {"x": x, "y": (x[:, 0] > 0).astype(np.int64)})


def drawn(seed: int = 7):
    return table(seed=seed)


def large_ones(min_samples: int = 5):
    return table()


class Net(nn.Module):
    def __init__(self, width: int = 3):
        super().__init__()
        self.body, self.head = nn.Linear(3, width), nn.Linear(width, 2)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))


def slow(lr: float, steps: int = 2):
    return ft.algorithms.fedavg(lr=lr / 2, steps=steps)


def warmup(now, value: float = 0.1):
    return value * min(1.0, (now.round + 1) / 3)


def focal(outputs, targets, gamma: float = 0.0):
    loss = nn.functional.cross_entropy(outputs, targets, reduction="none")
    return (1 - torch.exp(-loss)) ** gamma * loss


def _agreement(outputs, targets):
    return (outputs.argmax(-1) == targets).float()


agreement = ft.Metric(_agreement, higher_is_better=True, name="agreement")


def jitter(batch, key, size: float = 0.1):
    noise = torch.from_numpy(np.random.default_rng(int(key) % 2**32).normal(size=batch["x"].shape))
    return {**batch, "x": batch["x"] + size * noise.to(batch["x"].dtype)}


def damped(momentum: float = 0.5):
    return ft.optimizers.sgd(momentum)
"""


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[Path]:
    """A folder with own code in `mine_here.py`; what was imported from it is forgotten afterwards."""
    paths, folders, granted = list(sys.path), list(own_code._folders), own_code._granted
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "mine_here.py").write_text(MINE)
    yield folder
    sys.path[:], own_code._folders[:] = paths, folders
    own_code._granted = granted
    sys.modules.pop("mine_here", None)


def own_experiment(**changes: Any) -> dict[str, Any]:
    return {
        "rounds": 3,
        "data": {"name": "mine_here:clients", "count": 5},
        "model": {"name": "mine_here:Net", "width": 4},
        "algorithm": {"name": "mine_here:slow", "lr": 0.2, "steps": 2},
        "loss": {"name": "mine_here:focal", "gamma": 2.0},
        "metrics": ["mine_here:agreement"],
        "augment": ["noise", {"name": "mine_here:jitter", "size": 0.2}],
        "batch_size": 4,
        "evaluation": {"every": 1},
        **changes,
    }


def written(folder: Path, **changes: Any) -> Path:
    path = folder / "experiment.toml"
    path.write_text(tomli_w.dumps(own_experiment(**changes)))
    return path


def test_a_file_of_own_code_is_the_same_run_as_in_python(mine: Path) -> None:
    file = read(written(mine))
    settings = settings_of(file)
    import mine_here

    result = ft.run(**settings)
    by_hand = ft.run(
        model=lambda: mine_here.Net(4),
        data=mine_here.clients(5),
        algorithm=ft.algorithms.fedavg(lr=0.1, steps=2),
        rounds=3,
        batch_size=4,
        loss=lambda outputs, targets: mine_here.focal(outputs, targets, 2.0),
        metrics=[mine_here.agreement],
        augment=ft.data.augment.noise() | ft.data.augment.as_augment(lambda b, k: mine_here.jitter(b, k, 0.2)),
        evaluation=ft.Evaluation(every=1),
    )
    assert result.digest() == by_hand.digest()
    assert result.scores is not None
    assert result.scores.metric == "agreement"


def test_names_nest_and_tables_are_split_as_usual(mine: Path) -> None:
    algorithm = {
        "name": "fednar",
        "weight_decay": 0.01,
        "max_norm": 1.0,
        "around": {
            "name": "mine_here:slow",
            "lr": 0.1,
        },
    }
    split = {"name": "iid", "clients": 6}
    data = {"name": "mine_here:table", "rows": 90, "seed": 3, "split": split, "validation": 0.2}
    settings = settings_of(read(written(mine, algorithm=algorithm, data=data)))
    assert len(settings["data"]) == 6
    rate = {"schedule": "mine_here:warmup", "value": 0.3}
    builtin = {"name": "fedavg", "lr": rate, "steps": 1, "optimizer": {"name": "mine_here:damped", "momentum": 0.9}}
    made = settings_of(read(written(mine, algorithm=builtin)))["algorithm"]
    assert repr(made) == "fedavg(lr=mine_here:warmup(value=0.3), steps=1, optimizer=sgd(momentum=0.9))"
    lr = made.phases[0].lr
    assert [lr.at(ft.Now(round=r)) for r in (0, 1, 5)] == pytest.approx([0.1, 0.2, 0.3])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": {"name": "mine_here:slw", "lr": 0.1}}, "algorithm: name in mine_here 'slw' is not known"),
        ({"algorithm": {"name": "mine_here:slow", "lr": "x"}}, "algorithm.lr must be a finite number. Got 'x'."),
        ({"algorithm": {"name": "mine_here:slow"}}, "algorithm.lr must be given for 'mine_here:slow'. Got nothing."),
        ({"algorithm": {"name": "mine_here:table"}}, "must return an Algorithm. Got a Table."),
        (
            {"model": {"name": "not_here_at_all:Net"}},
            "'not_here_at_all:Net', which is not beside the file. If you trust it, add --allow-code not_here_at_all.",
        ),
        ({"model": {"name": "mine here:Net"}}, "model must name own code as 'package.module:name'."),
        ({"metrics": ["mine_here:_agreement"]}, "must be a Metric, which says what is better"),
        ({"data": {"name": "mine_here:clients", "new_clients": 2}}, "data.new_clients must be left out"),
        (
            {"data": {"name": "mine_here:drawn"}},
            "data.seed must be given for 'mine_here:drawn', whose own seed is 7: it also says how rows are divided.",
        ),
        (
            {"data": {"name": "mine_here:large_ones", "min_samples": 3}},
            "parameter 'min_samples' of 'mine_here:large_ones' must have another name: data.min_samples says how rows",
        ),
    ],
)
def test_what_is_wrong_with_own_code_is_one_line(mine: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings_of(read(written(mine, **changes)))
    assert message in str(error.value)


def test_a_parameter_named_like_a_setting_that_is_not_given_survives_writing(mine: Path) -> None:
    file = read(written(mine, data={"name": "mine_here:large_ones", "split": {"name": "iid", "clients": 3}}))
    assert len(settings_of(parse(file.model_dump()))["data"]) == 3


def test_only_what_the_file_names_is_imported(tmp_path: Path, mine: Path) -> None:
    before = list(sys.path)
    (mine / "plain.toml").write_text(tomli_w.dumps(SMALL))
    read(mine / "plain.toml")
    assert sys.path == before
    assert "mine_here" not in sys.modules


def test_a_file_that_a_command_wrote_elsewhere_names_the_same_code(
    tmp_path: Path, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "search"
    other.mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="cannot be imported: ModuleNotFoundError"):
        read(written(other), allow_code=["mine_here"])
    own_code._granted = own_code.Granted()
    monkeypatch.chdir(mine)
    with pytest.raises(ConfigError, match=r"not beside the file\. If you trust it, add --allow-code mine_here"):
        read(written(other))
    assert read(written(other), allow_code=["mine_here"]).model.name == "mine_here:Net"
    (other / "mine_here.py").write_text("raise RuntimeError('the one beside the file comes first')")
    sys.modules.pop("mine_here")
    sys.path.remove(str(mine.resolve()))
    own_code._folders.clear()
    own_code._granted = own_code.Granted()
    with pytest.raises(ConfigError, match="the one beside the file comes first"):
        read(written(other))


def test_one_name_in_two_folders_is_refused(tmp_path: Path, mine: Path) -> None:
    read(written(mine))
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine_here.py").write_text(MINE.replace("lr / 2", "lr / 3"))
    with pytest.raises(ConfigError, match="must mean one module"):
        read(written(other))


ATTACKS = {
    "the standard library": "os:system",
    "a part of it": "os.path:join",
    "the interpreter's own": "builtins:exec",
    "the program that runs": "__main__:main",
    "an installed package": "tomli_w:dumps",
    "this library": "fedtempo.support.files:write_atomically",
    "by way of an own module": "mine_here:np.load",
    "by way of two": "mine_here:nn.functional.relu",
    "what an own module imports by name": "mine_here:run_it",
    "a builtin that it has": "mine_here:execute",
    "what every function has": "mine_here:slow.__globals__",
    "a method of a value": "mine_here:PLACE.write_text",
}
PLACES = ("model", "algorithm", "data", "metric", "loss")


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("place", PLACES)
def test_a_file_alone_runs_nothing(place: str, name: str, mine: Path) -> None:
    with (mine / "mine_here.py").open("a") as file:
        file.write(
            "\nfrom os import system as run_it\nfrom pathlib import Path\nexecute = exec\nPLACE = Path('written')\n"
        )
    changes = {
        place: {"name": ATTACKS[name], "command": "touch written"},
        **({} if place == "data" else {"data": SMALL["data"]}),
    }
    if place != "metric":
        changes |= {"metrics": None}
    values = {key: value for key, value in {**SMALL, **changes}.items() if value is not None}
    (mine / "sent.toml").write_text(tomli_w.dumps(values))
    with pytest.raises(ConfigError, match=r"names code of its own|standard library|must be a function|is not known"):
        read(mine / "sent.toml")


def test_a_run_folder_has_no_modules_beside(mine: Path) -> None:
    path = written(mine)
    assert read(path).model.name == "mine_here:Net"
    own_code._granted = own_code.Granted()
    (mine / "run.sqlite").touch()
    with pytest.raises(ConfigError, match="a stored run may come"):
        read(path)


def test_a_module_beside_does_not_stand_for_a_loaded_one(mine: Path) -> None:
    (mine / "tomli_w.py").write_text(MINE)
    with pytest.raises(ConfigError, match="another 'tomli_w' is loaded"):
        read(written(mine, model={"name": "tomli_w:Net"}))


COMMANDS = {
    "run": ["run", "{file}"],
    "schedule": ["schedule", "{file}"],
    "advise": ["advise", "{file}"],
    "tune": ["tune", "{rated}", "--out", "{out}"],
    "compare": ["compare", "{file}", "--out", "{out}"],
    "compare --tune": ["compare", "{file}", "--tune", "--out", "{out}"],
    "a setting": ["run", "{plain}", "--set", "model={{name='os:system',command='touch {out}'}}"],
    "an algorithm": ["compare", "{plain}", "--algorithms", "os:system:command='touch {out}'"],
    "a table to try": ["tune", "{tuned}", "--out", "{out}"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_runs_it(command: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shell = {"name": "os:system", "command": f"touch {out}"}
    tuned = {"tune": {"model.name": ["mlp", "os:system"]}}
    rated = {"model": shell, "tune": {"algorithm.lr": [0.1, 0.2]}}
    files = {"file": {"model": shell}, "plain": {}, "tuned": tuned, "rated": rated}
    for name, changes in files.items():
        (tmp_path / f"{name}.toml").write_text(tomli_w.dumps({**SMALL, **changes}))
    places = {name: tmp_path / f"{name}.toml" for name in files}
    ended = fedtempo_ended(*(part.format(**places, out=out) for part in COMMANDS[command]))
    assert ended.returncode == 3
    assert "must not name a module of the standard library" in ended.stderr
    assert not out.exists()


def test_names_on_the_command_line_are_found_beside_the_file(mine: Path, tmp_path: Path) -> None:
    """Also where the file itself names none of them; in the current folder only if the caller says so."""
    (mine / "plain.toml").write_text(tomli_w.dumps(SMALL))
    (tmp_path / "plain.toml").write_text(tomli_w.dumps(SMALL))
    algorithms = ["--algorithms", "mine_here:slow:lr=0.3"]
    found = fedtempo_ended("schedule", str(mine / "plain.toml"), *algorithms, "--json", directory=tmp_path)
    assert list(json.loads(found.stdout)) == ["mine_here:slow:lr=0.3"]
    refused = fedtempo_ended("schedule", str(tmp_path / "plain.toml"), *algorithms, directory=mine)
    assert "not beside the file. If you trust it, add --allow-code mine_here" in refused.stderr
    allowed = ["--allow-code", "mine_here"]
    assert (
        fedtempo_ended("schedule", str(tmp_path / "plain.toml"), *algorithms, *allowed, directory=mine).returncode == 0
    )
    compared = fedtempo_ended("compare", str(mine / "plain.toml"), *algorithms, "--only", "--json", directory=tmp_path)
    assert compared.returncode == 0, compared.stderr


def test_a_stored_folder_imports_only_what_is_allowed(tmp_path: Path, mine: Path, monkeypatch: Any) -> None:
    out = tmp_path / "run"
    result = drained(train_file(read(written(mine)), out))
    result.export(out)
    (out / "mine_here.py").write_text("raise RuntimeError('imported from inside the run')")
    stored = out / "experiment.toml"
    with pytest.raises(ConfigError, match="add --allow-code mine_here"):
        read_stored(stored)
    assert read_run(out).picture is None
    assert read_run(out, allow_code=["mine_here"]).picture is not None
    assert drained(train_file(read_stored(stored, allow_code=["mine_here"]), out, True)).digest() == result.digest()
    # The folder's own module is never the one: neither by the current folder nor by the search path.
    sys.modules.pop("mine_here")
    sys.path[:] = [str(out), *(place for place in sys.path if place != str(mine.resolve()))]
    own_code._folders.clear()
    own_code._granted = own_code.Granted()
    monkeypatch.chdir(out)
    with pytest.raises(ConfigError, match="cannot be imported: ModuleNotFoundError"):
        stored_file(stored, ["mine_here"])
    # As a part of a package above the folder it is found, and refused.
    monkeypatch.chdir(tmp_path)
    text = stored.read_text().replace("mine_here:", "run.mine_here:")
    stored.write_text(text)
    with pytest.raises(ConfigError, match="must not lie inside the stored run"):
        stored_file(stored, ["run"])


def test_registered_names_are_known(mine: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "mine_pack-1.0.dist-info").mkdir(parents=True)
    (site / "mine_pack-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: mine-pack\nVersion: 1.0\n")
    (site / "mine_pack-1.0.dist-info" / "entry_points.txt").write_text(
        "[fedtempo.algorithms]\nslower = mine_here:slow\n"
    )
    sys.path.insert(0, str(site))
    sys.path.insert(0, str(mine))
    with pytest.raises(ConfigError, match=r"'slower'.*add --allow-code mine_here"):
        parse(experiment(algorithm={"name": "slower", "lr": 0.2}))
    own_code.allow(["mine_here"])
    file = parse(experiment(algorithm={"name": "slower", "lr": 0.2}))
    own_code._granted = own_code.Granted()
    stored = tmp_path / "run" / "experiment.toml"
    stored.parent.mkdir()
    stored.write_text(tomli_w.dumps(file.model_dump(exclude_none=True)))
    with pytest.raises(ConfigError, match="add --allow-code mine_here"):
        stored_file(stored)
    made = settings_of(stored_file(stored, ["mine_here"]))["algorithm"]
    assert repr(made) == "fedavg(lr=0.1, steps=2)"
    with pytest.raises(ConfigError, match="Did you mean 'slower'"):
        parse(experiment(algorithm={"name": "slowr", "lr": 0.2}))


@pytest.mark.parametrize("workers", slow_but([1], [1, 2], "two processes that load torch"))
def test_compare_and_tune_take_own_code(workers: int, mine: Path, tmp_path: Path) -> None:
    path = written(mine, backend="serial")
    file = read(path)
    entrants = entrants_of(file, "mine_here:slow:lr=0.3,steps=1,fedavg", only=True)
    assert [entrant.label for entrant in entrants] == ["mine_here:slow:lr=0.3,steps=1", "fedavg"]
    assert entrants[0].file.algorithm.settings == {"lr": 0.3, "steps": 1}
    space = tmp_path / "space.toml"
    space.write_text('[tune]\n"algorithm.lr" = [0.1, 0.2]\n')
    plan = plan_search(space_of(path, None, space, {}), None, None, 1, "random")
    found = search(plan, tmp_path / "tune", workers=workers)
    assert [record.outcome.state for record in found.records] == ["complete"] * 2


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (
            {"name": "reptile", "lr": 0.1, "steps": 1, "outer_lr": 1.0},
            "'outer_lr' is not known any more. It is server_lr",
        ),
        (
            {"name": "fomaml", "lr": 0.1, "steps": 1, "outer_lr": 1.0},
            "'outer_lr' is not known any more. It is server_lr",
        ),
        ({"name": "fedrep", "body_lr": 0.1}, "lr is the body's rate; the head's is head_lr."),
        ({"name": "pflego", "lr": 0.1, "steps": 1}, "'lr' is not known any more. It is head_lr now."),
    ],
)
def test_old_names_are_answered_with_the_new_one(algorithm: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(experiment(algorithm=algorithm))
    assert message in str(error.value)


def test_a_file_survives_writing_and_reading(mine: Path) -> None:
    file = read(written(mine))
    again = parse(json.loads(json.dumps(file.model_dump(exclude_none=True))))
    assert again == file


def saw(now: ft.schedules.Now, value: float) -> float:
    """A rate that needs a setting."""
    return value / (1 + now.round)


def test_a_function_without_its_setting_is_told_which_it_lacks() -> None:
    """The library passes the position itself: to ask the user for it leads astray."""
    own_code.allow([__name__])
    with pytest.raises(ConfigError, match=r"algorithm.lr '.*:saw' must be given value, and now if it makes"):
        function_or_made("algorithm.lr", f"{__name__}:saw", {}, {}, "schedule", 1)
