"""A study file is checked whole before anything runs; every error is one line with its place in the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from fedtempo.errors import ConfigError, OutputError
from fedtempo.study import compare_fairly
from fedtempo.study.file import read_study
from tests.programs import fedtempo_ended
from tests.unit.study.test_study import EXPERIMENT

OWN = {"algorithm": {"name": "feddecay", "beta": 0.5, "steps": 2}, "tune": {"lr": [0.1, 0.3]}}
BASE: dict[str, Any] = {
    "study": {
        "title": "Decay or not",
        "experiment": "experiment.toml",
        "seeds": {"tune": 1, "judge": 2},
        "budget": {"trials": 2, "patience": 9},
    },
    "contestants": {"FedDecay": OWN, "FedAvg": {"algorithm": {"steps": 2}}},
    "claims": [{"text": "Decay helps.", "higher": ["FedDecay", "FedAvg", "new_after/mean"]}],
}


def written(folder: Path, values: dict[str, Any]) -> Path:
    (folder / "experiment.toml").write_text(EXPERIMENT)
    path = folder / "decay.toml"
    path.write_text(tomli_w.dumps(values))
    return path


def changed(where: str, value: Any) -> dict[str, Any]:
    values = json.loads(json.dumps(BASE))
    *parents, last = where.split("/")
    here = values
    for parent in parents:
        here = here[int(parent)] if isinstance(here, list) else here.setdefault(parent, {})
    if isinstance(here, list):
        here[int(last) : int(last) + 1] = [value]
    else:
        here[last] = value
    return values


WRONG = {
    "contestant/x": "decay.toml: table 'contestant' is not known. Did you mean 'contestants'?",
    "study/seed": "decay.toml: setting 'study.seed' is not known. Did you mean 'study.seeds'?",
    "study/experiment": "decay.toml: study.experiment: experiment file must be readable.",
    "study/seeds": "decay.toml: study.seeds must be a table such as { tune = 2, judge = 5 }.",
    "study/seeds/judge": "decay.toml: study: seeds must be an int >= 1 or a list of ints.",
    "study/budget/trials": "decay.toml: study: trials must be an int >= 1.",
    "study/budget/trails": "decay.toml: setting 'study.budget.trails' is not known.",
    "study/test": "decay.toml: study: test must be 't' or 'sign-flip'.",
    "study/reference": "decay.toml: study.reference 'wrong' is not known.",
    "contestants/FedAvg/algorithms": "decay.toml: setting 'contestants.FedAvg.algorithms' is not known.",
    "contestants/FedAvg/algorithm/betta": "decay.toml: contestants.FedAvg: algorithm 'fedavg': setting 'betta'",
    "contestants/FedDecay/tune/lr": "decay.toml: contestants.FedDecay.tune: tune 'lr' must be a list of at least",
    "claims/0/higer": "decay.toml: setting 'claims[0].higer' is not known. Did you mean 'claims[0].higher'?",
    "claims/0/lower": "decay.toml: claims[0] must be given one of higher, lower, better.",
    "claims/0/higher": "decay.toml: claims[0].higher must be a list of two contestants and what is compared.",
    "claims/0/paper": "decay.toml: claims[0].paper must be a table of numbers by contestant.",
}


@pytest.mark.parametrize("where", WRONG)
def test_what_is_wrong_is_one_line_with_its_place(where: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_study(written(tmp_path, changed(where, "wrong")))
    assert str(caught.value).startswith(WRONG[where]) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("higher", "said"),
    [
        (["FedDecy", "FedAvg"], "claims[0].higher: contestant 'FedDecy' is not known. Did you mean 'FedDecay'?"),
        (["FedAvg", "FedAvg"], "claims[0].higher must be about two contestants."),
        (
            ["FedDecay", "FedAvg", "new_after/auroc"],
            "claims[0].higher: what is compared 'new_after/auroc' is not known",
        ),
    ],
)
def test_a_claim_is_about_two_contestants_that_there_are(higher: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_study(written(tmp_path, changed("claims/0/higher", higher)))
    assert str(caught.value).startswith(f"decay.toml: {said}")


def test_what_is_tuned_must_be_a_field_of_the_contestant(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"contestants\.FedDecay: .*setting 'betta' is not known\. Did"):
        read_study(written(tmp_path, changed("contestants/FedDecay/tune/betta", [0.1, 0.2])))


def test_no_seed_is_tuned_and_judged(tmp_path: Path) -> None:
    values = changed("study/seeds", {"tune": [1, 2], "judge": [0, 1]})
    with pytest.raises(ConfigError, match=r"tuning seeds must be seeds that are not judged\. Got \[1\]"):
        read_study(written(tmp_path, values)).plan()


def test_rates_that_are_needed_and_not_named_are_tuned(tmp_path: Path) -> None:
    values = changed("contestants/Around", {"algorithm": {"name": "fednar", "around": {"name": "fedavg", "steps": 2}}})
    values["contestants"]["Around"]["algorithm"] |= {"weight_decay": 0.1, "max_norm": 1.0}
    values["contestants"]["Fixed"] = {"algorithm": {"lr": 0.3}, "tune": False, "set": {"batch_size": 5}}
    tunables = {one.label: one for one in read_study(written(tmp_path, values)).tunables}
    tuned = {label: [dimension.name for dimension in one.dimensions] for label, one in tunables.items()}
    assert tuned == {
        "FedDecay": ["algorithm.lr"],
        "FedAvg": ["algorithm.lr"],  # the experiment names a rate, and everybody's is tuned
        "Around": ["algorithm.around.lr"],
        "Fixed": [],
    }
    assert tunables["FedDecay"].dimensions[0].choices == (0.1, 0.3)
    assert tunables["Fixed"].make({}, 3)["batch_size"] == 5 and tunables["Fixed"].make({}, 3)["seed"] == 3


def test_a_cost_that_is_lower_is_better(tmp_path: Path) -> None:
    study = read_study(written(tmp_path, changed("claims/0", {"lower": ["FedDecay", "FedAvg", "steps"]})))
    assert study.claims == (("FedDecay", "FedAvg", "steps"),)
    assert read_study(written(tmp_path, changed("claims/0", {"higher": ["FedDecay", "FedAvg", "steps"]}))).claims == (
        ("FedAvg", "FedDecay", "steps"),
    )


def test_higher_means_worse_where_less_is_better(tmp_path: Path) -> None:
    (tmp_path / "less").mkdir()
    path = written(tmp_path / "less", {**BASE, "study": {**BASE["study"], "margin": 0.1}})
    beside = tmp_path / "less" / "experiment.toml"
    beside.write_text('metric = "loss"\n' + EXPERIMENT)
    plan = read_study(path).plan()
    assert plan.lower_is_better and plan.claims == (("FedAvg", "FedDecay", "new"),) == (plan.said[0]["claim"],)


def test_the_command_goes_through_tunes_judges_and_decides(tmp_path: Path) -> None:
    values = changed("claims/1", {"lower": ["FedDecay", "FedAvg", "steps"], "paper": {"FedAvg": 7}})
    path, out = written(tmp_path, values), tmp_path / "out"
    planned = fedtempo_ended("study", str(path), "--plan", "--out", str(out))
    assert planned.returncode == 0, planned.stderr
    assert "Decay or not" in planned.stdout and "8 runs, at most about" in planned.stdout and not out.exists()
    ended = fedtempo_ended("study", str(path), "--out", str(out), "--workers", "1")
    assert ended.returncode == 0, ended.stderr
    assert "no difference: FedDecay is better than FedAvg: steps (they are equal in every seed" in ended.stdout
    assert "the paper: FedAvg 7" in ended.stdout and "8 runs, at most about" in ended.stderr
    assert {"plan.json", "fair.json", "report.html", "study.toml", "runs", "tuning"} <= {p.name for p in out.iterdir()}
    again = compare_fairly(read_study(path).tunables, read_study(path).plan(), out)
    assert [one.answer for one in again.rulings][1] == "no difference"
    refused = fedtempo_ended("study", str(written(tmp_path, changed("study/margin", 0.02))), "--out", str(out))
    assert refused.returncode == OutputError.exit_code and "a plan must not change once it is written" in refused.stderr


def test_it_may_name_code_beside_it_and_other_code_only_if_allowed(tmp_path: Path) -> None:
    (tmp_path / "beside_a_study.py").write_text(
        "import fedtempo as ft\ndef mine(lr: float) -> ft.Algorithm:\n    return ft.algorithms.fedavg(lr=lr, steps=1)\n"
    )
    values = changed("contestants/Mine", {"algorithm": {"name": "beside_a_study:mine"}})
    tunables = read_study(written(tmp_path, values)).tunables
    assert [dimension.name for dimension in tunables[-1].dimensions] == ["algorithm.lr"]
    with pytest.raises(ConfigError, match="--allow-code packaging"):
        read_study(written(tmp_path, changed("contestants/Mine", {"algorithm": {"name": "packaging.version:parse"}})))


def test_new_writes_a_study_that_can_be_planned(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    ended = fedtempo_ended("new", str(path), "--study", "--data", "digits", "--algorithm", "fednar", "--rounds", "4")
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "experiment.toml").exists()
    study = read_study(path)
    assert [[one.name for one in each.dimensions] for each in study.tunables] == [
        ["algorithm.around.lr"],
        ["algorithm.lr"],
    ]
    assert study.plan().claims == (("fednar", "fedavg", "existing"), ("fednar", "fedavg", "new"))
