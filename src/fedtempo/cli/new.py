"""`fedtempo new`: a commented experiment file to start from, for a data set of ours or for a CSV file."""

from __future__ import annotations

import inspect
import re
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tomli_w
import typer

from fedtempo.algorithms import ALGORITHMS
from fedtempo.config import make_algorithm, parse
from fedtempo.data import from_csv
from fedtempo.data.column_doubts import doubt
from fedtempo.data.frame_columns import read_csv
from fedtempo.data.table import Table
from fedtempo.errors import ConfigError, OutputError, require, unknown
from fedtempo.study.file import read_study
from fedtempo.study.ranges import RATES
from fedtempo.support.files import write_atomically
from fedtempo.support.terminal import say
from fedtempo.tasks import SAMPLE_WEIGHT

# What a data set of ours is divided by, and a model that fits it.
SPLIT = {"name": "dirichlet", "clients": 50, "alpha": 0.3}
STARTS: dict[str, tuple[dict[str, Any] | None, dict[str, Any]]] = {
    "digits": (SPLIT, {"name": "mlp", "inputs": 64, "hidden": [200], "outputs": 10}),
    "mnist": (SPLIT, {"name": "mlp", "inputs": 784, "hidden": [200], "outputs": 10}),
    "fashion_mnist": (SPLIT, {"name": "mlp", "inputs": 784, "hidden": [200], "outputs": 10}),
    "cifar10": (SPLIT, {"name": "group_norm_cnn"}),
    "femnist": (None, {"name": "cnn", "outputs": 62, "channels": [8], "hidden": 64}),
    "shakespeare": (None, {"name": "character_gru", "hidden": 64, "layers": 1}),
}
GUESSES = {
    "lr": 0.1,
    "head_lr": 0.1,
    "server_lr": 0.01,
    "steps": 10,
    "head_steps": 5,
    "body_steps": 5,
    "beta": 0.6,
    "weight_decay": 0.01,
    "max_norm": 1.0,
    "weights_lr": 0.1,
    "decay": 0.01,
    "relative": 0.5,
}
"""First values of an algorithm's settings. They are where to start from; `fedtempo tune` finds better ones."""
FEWEST_ROWS = 5
"""Of fewer rows a client keeps none for validation and none for tests, a fifth each."""
LARGE_TARGET = 100.0
"""Squared errors of larger targets have gradients too large for the first rate."""

ALWAYS = ("lr", "steps", "head_steps", "body_steps", "beta", "relative")
"""Settings that are written even where the algorithm has a default."""


def new(
    path: Annotated[
        Path | None, typer.Argument(help="The file to write: experiment.toml, or study.toml with --study.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help=f"{', '.join(STARTS)}, or a CSV file with a column that names the client.")
    ] = None,
    client: Annotated[str | None, typer.Option(help="The CSV file's column that names the client.")] = None,
    target: Annotated[str | None, typer.Option(help="The CSV file's column that is predicted.")] = None,
    target_kind: Annotated[
        str | None,
        typer.Option(help="Whether the target is classes or numbers; needed for whole numbers other than 0, 1, 2, ..."),
    ] = None,
    separator: Annotated[str, typer.Option(help="The CSV file's separator, such as ';'.")] = ",",
    decimal: Annotated[str, typer.Option(help="The CSV file's decimal mark: '.' or ','.")] = ".",
    algorithm: Annotated[str | None, typer.Option(help="The algorithm's name; `fedtempo run --help` has all.")] = None,
    rounds: Annotated[int, typer.Option(help="How many rounds.", min=1)] = 30,
    study: Annotated[
        bool, typer.Option("--study", help="Write a study of this algorithm against FedAvg, beside experiment.toml.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Write a commented experiment file to start from, or a study file; ask for what is not given."""
    path = path or Path("study.toml" if study else EXPERIMENT)
    if path.exists() and not force:
        raise OutputError(f"{path} is there already. Use --force to overwrite it.")
    asks = sys.stdin.isatty()
    data = data or (typer.prompt("Data set, or a CSV file", default="digits") if asks else "digits")
    own = data.lower().endswith(".csv")
    if own and asks:
        client = client or typer.prompt("Column that names the client")
        target = target or typer.prompt("Column to predict")
    algorithm = algorithm or (typer.prompt("Algorithm", default="feddecay") if asks else "feddecay")
    marks = {"separator": separator, "decimal": decimal}
    values = {
        "rounds": rounds,
        "cohort": 1.0 if own else 0.2,  # sites that bring a file are few; a fifth of six hospitals would be one
        "batch_size": 32,
        "seed": 0,
        **(_csv(data, client, target, target_kind, marks) if own else _ours(data)),
        "algorithm": _algorithm(algorithm),
        "evaluation": {"every": max(1, rounds // 6)},
    }
    parse(values)
    text = _commented(tomli_w.dumps(values), algorithm)
    if study:
        _write_study(path, text, algorithm)
        return
    write_atomically(path, text)
    say(f"{path} is written. Next: fedtempo run {shlex.quote(str(path))}")


def _write_study(path: Path, experiment: str, algorithm: str) -> None:
    """The study file, and the experiment file beside it unless there is one."""
    beside = path.with_name(EXPERIMENT)
    require(path.name != EXPERIMENT, "the study file", f"called otherwise than {EXPERIMENT}, which it names", str(path))
    if not beside.exists():
        write_atomically(beside, experiment)
        say(f"{beside} is written")
    other = "fedavg" if algorithm != "fedavg" else "feddecay"
    write_atomically(
        path, STUDY.format(experiment=EXPERIMENT, base=other, own=_section(algorithm), other=_section(other))
    )
    read_study(path)
    say(f"{path} is written. Next: fedtempo study {shlex.quote(str(path))} --plan")


def _section(name: str) -> str:
    """An algorithm's tables of a study, with what it needs but the rates, which are tuned."""

    def without_rates(section: dict[str, Any]) -> dict[str, Any]:
        kept = {key: value for key, value in section.items() if key not in RATES}
        return {**kept, "around": without_rates(section["around"])} if "around" in section else kept

    return tomli_w.dumps({"contestants": {name: {"algorithm": without_rates(_algorithm(name))}}}).strip()


def _ours(name: str) -> dict[str, Any]:
    if name not in STARTS:
        raise unknown("data", name, STARTS)
    split, model = STARTS[name]
    divided = {"split": split} if split else {}
    return {"data": {"name": name, "new_clients": 0.2, "min_samples": 2, **divided}, "model": model}


def _csv(
    path: str, client: str | None, target: str | None, target_kind: str | None, marks: dict[str, str]
) -> dict[str, Any]:
    """The file is read, so that columns are there and the network has the right size."""
    for option, given in (("--client", client), ("--target", target)):
        require(given is not None, option, f"given for {path}: the name of a column", None)
    treated: dict[str, Any] = {"strings": "one_hot", "missing": "mean", "standardise": True}
    treated |= {} if target_kind is None else {"target_kind": target_kind}
    treated |= {name: mark for name, mark in marks.items() if mark != {"separator": ",", "decimal": "."}[name]}
    treated |= _chosen(Path(path), str(client), str(target), marks)
    table = from_csv(path, client=str(client), target=str(target), **treated)
    _warn(table, str(client), str(target))
    settings = {"path": path, "client": client, "target": target, **treated}
    model = {"name": "mlp", "inputs": table.columns["x"].shape[1], "hidden": [64], "outputs": _outputs(table)}
    return {"data": {"name": "csv", **settings, "new_clients": 0.2}, "model": model}


def _chosen(path: Path, client: str, target: str, marks: dict[str, str]) -> dict[str, list[str]]:
    """The features, where some column holds dates or ids: they predict nothing for other patients."""
    if not path.is_file():
        return {}  # reading it says what is wrong
    columns = read_csv(path, (client,), **marks)
    features = {name: values for name, values in columns.items() if name not in (client, target, SAMPLE_WEIGHT)}
    reasons = {name: doubt(name, values) for name, values in features.items()}
    left_out = {name: reason for name, reason in reasons.items() if reason}
    for name, reason in left_out.items():
        hint = "; --decimal , reads them" if "decimal commas" in reason else ""
        say(f"column {name!r} is left out of features: it looks like {reason}{hint}", error=True)
    return {"features": [name for name in features if name not in left_out]} if left_out else {}


def _warn(table: Table, client: str, target: str) -> None:
    """What would train all the same, and most likely not as meant."""
    assert table.keys is not None
    sizes, targets = np.bincount(table.keys), table.columns["y"]
    if np.median(sizes) < FEWEST_ROWS:
        what = f"{len(sizes)} clients in {len(targets)} rows, most with fewer than {FEWEST_ROWS}"
        say(f"column {client!r} names {what}: too few to keep some for tests", error=True)
    if targets.dtype.kind == "f" and (largest := float(np.abs(targets).max())) > LARGE_TARGET:
        hint = "training may diverge; give it in larger units, or lower algorithm.lr"
        say(f"target {target!r} has numbers up to {largest:.6g}: {hint}", error=True)


def _outputs(table: Table) -> int:
    targets = table.columns["y"]
    return int(targets.max()) + 1 if targets.dtype.kind in "iu" else 1


def _algorithm(name: str) -> dict[str, Any]:
    """The algorithm with first values of what it needs; a wrapper goes around FedAvg."""
    if name not in ALGORITHMS:
        raise unknown("algorithm", name, ALGORITHMS)
    known = inspect.signature(ALGORITHMS[name]).parameters
    section: dict[str, Any] = {"name": name}
    for setting, parameter in known.items():
        needed = parameter.default is inspect.Parameter.empty and parameter.kind is not inspect.Parameter.VAR_KEYWORD
        if setting == "algorithm":
            section["around"] = _algorithm("fedavg")
        elif setting in GUESSES and (needed or setting in ALWAYS) and not isinstance(parameter.default, bool):
            section[setting] = GUESSES[setting]
        elif needed:
            raise ConfigError(f"algorithm {name!r} needs {setting!r}, for which there is no first value.")
    make_algorithm(section)
    return section


EXPERIMENT = "experiment.toml"
STUDY = """\
# Check it, see the plan and about how long it takes: fedtempo study FILE --plan. Run it: fedtempo study FILE.
[study]
title = "Which is better for new users?"
# What everybody has in common: data, model, rounds, evaluation.
experiment = "{experiment}"
# How many seeds, or which. Tuned seeds are never judged.
seeds = {{ tune = 2, judge = 5 }}
# The same for everybody. A run ends after `patience` evaluations without a better validation score. Whoever's best
# rate is at an end of its range has `widen` more trials beyond it.
budget = {{ trials = 8, patience = 5, widen = 4 }}
# Everybody is compared with this one.
reference = "{base}"

# Rates that an algorithm needs and that are not named here are tuned in their usual ranges. To say what is tried:
# tune = {{ lr = {{ log = [0.01, 1.0] }}, beta = [0.4, 0.6, 0.8] }}
{own}

{other}

# Without claims, everybody is asked to be better than the reference, for existing and for new users.
# [[claims]]
# text = "A sentence that the study decides."
# higher = ["CONTESTANT", "CONTESTANT", "new_after/mean"]
"""
COMMENTS = {
    "rounds =": "How often clients train and the server aggregates.",
    "cohort =": "The share of clients in a round; an int is their number.",
    "[data]": "`fedtempo data list` shows what there is. `new_clients` never train: they are the new users.",
    "[data.split]": "Who owns which rows. A smaller alpha makes clients more different.",
    "[model]": 'One of ours by name, or your own: name = "package.module:function".',
    "[evaluation]": "Users are scored before and after fine-tuning, every so many rounds. Try: patience = 5",
}


def _commented(text: str, algorithm: str) -> str:
    documented = (inspect.getdoc(ALGORITHMS[algorithm]) or "").splitlines()[0]
    comments = {**COMMENTS, "[algorithm]": f"{documented} First values; `fedtempo tune` finds better ones."}
    text = re.sub(r"\[\n\s+([^\[\]\n]*),\n\]", r"[\1]", text)  # tomli_w gives every value of a list its own line
    lines = ["# Run it: fedtempo run FILE. Look before you run: fedtempo schedule FILE."]
    for line in text.splitlines():
        comment = next((said for start, said in comments.items() if line.startswith(start)), None)
        lines += [f"# {comment}"] if comment else []
        lines.append(line)
    return "\n".join(lines) + "\n"
