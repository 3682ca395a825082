"""The command line's errors: one line on standard error, the right exit code, a traceback only with --debug."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedtempo.cli import main
from tests import ROOT
from tests.programs import fedtempo
from tests.waiting import PATIENCE

EXAMPLE = ROOT / "examples" / "feddecay.toml"
PROGRAM = [sys.executable, "-c", "from fedtempo.cli import main; main()"]
USAGE, CONFIG, DATA, MODEL, OUTPUT, TRAINING, INTERRUPTED = 2, 3, 4, 5, 6, 7, 130
RUN = ["run", str(EXAMPLE), "--quiet"]
COMPARE = ["compare", str(EXAMPLE)]

WRONG: dict[str, tuple[int, list[str], str]] = {
    "no command": (USAGE, [], "a command must be given"),
    "an unknown command": (USAGE, ["rnu"], "Did you mean 'run'?"),
    "an unknown option": (USAGE, ["run", "x.toml", "--sed", "1"], "--sed"),
    "no file": (USAGE, ["run"], "EXPERIMENT"),
    "a seed in words": (USAGE, [*RUN, "--seed", "one"], "--seed"),
    "rounds in words": (USAGE, ["demo", "--rounds", "ten"], "--rounds"),
    "a missing file": (CONFIG, ["run", "nowhere.toml"], "experiment file must be readable. Got nowhere.toml"),
    "a folder for a file": (CONFIG, ["run", "."], "experiment file must be readable"),
    "a malformed override": (CONFIG, [*RUN, "--set", "rounds"], "--set must be written a.b=value. Got 'rounds'."),
    "a misspelt key": (CONFIG, [*RUN, "--set", "coohrt=2"], "Did you mean 'cohort'?"),
    "a misspelt algorithm key": (CONFIG, [*RUN, "--set", "algorithm.betta=0.1"], "Did you mean 'beta'?"),
    "an unknown algorithm": (CONFIG, [*RUN, "--set", "algorithm.name=fedavgg"], "Did you mean 'fedavg'?"),
    "an unknown data set": (CONFIG, [*RUN, "--set", "data.name=digit"], "Did you mean 'digits'?"),
    "an unknown model": (CONFIG, [*RUN, "--set", "model.name=mpl"], "Did you mean 'mlp'?"),
    "an unknown split": (CONFIG, [*RUN, "--set", "data.split.name=dirichlett"], "Did you mean 'dirichlet'?"),
    "an unknown backend": (CONFIG, [*RUN, "--backend", "serail"], "Did you mean 'serial'?"),
    "a hostile backend": (CONFIG, [*RUN, "--backend", 'x"\nseed=1'], "backend"),
    "an unknown loss": (CONFIG, [*RUN, "--set", "loss=clasification"], "Did you mean 'classification'?"),
    "an unknown dtype": (CONFIG, [*RUN, "--set", "dtype=float16"], "dtype must be 'bfloat16', 'float32' or 'float64'"),
    "a device that is not here": (CONFIG, [*RUN, "--set", "device=cuda:99"], "device must be"),
    "beta above 1": (
        CONFIG,
        [*RUN, "--set", "algorithm.beta=1.5"],
        "algorithm.beta must be a number in [0, 1]. Got 1.5",
    ),
    "no rounds": (CONFIG, [*RUN, "--set", "rounds=0"], "rounds must be an int in [1, 1000000000]. Got 0."),
    "a negative seed": (CONFIG, [*RUN, "--seed", "-1"], "seed must be an int >= 0. Got -1."),
    "a cohort larger than the clients": (CONFIG, [*RUN, "--set", "cohort=41"], "cohort must be an int in [1, 40]"),
    "too many new clients": (CONFIG, [*RUN, "--set", "data.new_clients=50"], "data.new_clients must be"),
    "a head that matches nothing": (
        CONFIG,
        [*RUN, "--set", 'algorithm={name="fedper", lr=0.1, steps=1, head={submodule="tail"}}'],
        "must match some tensors",
    ),
    "a demo without rounds": (CONFIG, ["demo", "--rounds", "0"], "rounds must be an int >= 1. Got 0."),
    "a demo without seeds": (CONFIG, ["demo", "--seeds", "-1"], "seeds must be an int >= 1. Got -1."),
    "a schedule of words": (CONFIG, ["schedule", str(EXAMPLE), "--rounds", "1,x"], "rounds must be ints"),
    "a schedule of rounds to come": (CONFIG, ["schedule", str(EXAMPLE), "--rounds", "31"], "in [1, 30]"),
    "a schedule for nobody": (CONFIG, ["schedule", str(EXAMPLE), "--samples", "0"], "samples must be an int >= 1"),
    "trials without tuning": (CONFIG, [*COMPARE, "--trials", "3"], "--trials must be given with --tune only. Got 3."),
    "no trials at all": (CONFIG, [*COMPARE, "--tune", "--trials", "0"], "trials must be an int >= 1. Got 0."),
    "a tuned folder": (CONFIG, ["compare", ".", "--tune"], "paths must be experiment files with --tune"),
    "a claim in words": (CONFIG, [*COMPARE, "--tune", "--claim", "it wins"], "a claim must be written 'LABEL > LABEL'"),
    "a claim about a stranger": (CONFIG, [*COMPARE, "--tune", "--claim", "fedavg > x"], "a contestant in claims"),
    "a range of words": (CONFIG, [*COMPARE, "--tune", "--range", "lr"], "a range must be written FIELD="),
    "a range for nobody": (CONFIG, [*COMPARE, "--tune", "--range", "algorithm.mu=[1]"], "some contestant has"),
    "a table with tuning": (CONFIG, [*COMPARE, "--tune", "--csv", "x.csv"], "--csv must be left out with --tune"),
    "a tuned comparison in a file": (OUTPUT, [*COMPARE, "--tune", "--out", str(EXAMPLE)], "out must be a folder"),
    "no natural clients": (
        DATA,
        [*RUN, "--set", "data.split.name=natural", "--set", "data.split={name='natural'}"],
        "",
    ),
    "more clients than rows": (DATA, [*RUN, "--set", "data.split.clients=5000"], ""),
    "a model of another width": (MODEL, [*RUN, "--set", "model.inputs=63"], "the model does not run on a batch"),
    "a model with too few outputs": (MODEL, [*RUN, "--set", "model.outputs=9"], "labels of shape"),
    "a loss that does not fit": (MODEL, [*RUN, "--set", "loss=language"], "one entry per class"),
    "a folder inside a file": (OUTPUT, [*RUN, "--out", str(EXAMPLE / "x")], "out must be a folder"),
    "a file for a folder": (OUTPUT, [*RUN, "--out", str(EXAMPLE)], "out must be a folder"),
    "a demo into a file": (OUTPUT, ["demo", "--out", str(EXAMPLE)], "out must be a folder"),
    "a plot into a file": (OUTPUT, ["schedule", str(EXAMPLE), "--plot", str(EXAMPLE / "x.html")], "plot must be"),
}


def call(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """`fedtempo ARGUMENTS` in this process; starting another one costs seconds."""
    monkeypatch.setattr(sys, "argv", ["fedtempo", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    code = caught.value.code
    assert isinstance(code, int)
    return code


@pytest.mark.parametrize("case", WRONG)
def test_an_error_is_one_line_and_a_code(
    case: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, arguments, expected = WRONG[case]
    assert call(arguments, monkeypatch) == code
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert line.startswith("fedtempo: ")
    assert expected in line
    assert line.count("Did you mean") <= 1
    assert arguments == [] or not printed.out


@pytest.mark.parametrize("case", ["a misspelt key", "a model of another width", "an unknown option"])
def test_debug_shows_the_traceback(
    case: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, arguments, expected = WRONG[case]
    assert call([*arguments, "--debug"], monkeypatch) == code
    error = capsys.readouterr().err
    assert "Traceback (most recent call last)" in error
    assert expected in error.splitlines()[-1]


def test_a_run_that_diverges_is_a_training_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = ["rounds=3", "algorithm.lr=100", "algorithm.server_lr=3e38", "cohort=2", "evaluation.users=1"]
    arguments = [*RUN, *(part for change in changes for part in ("--set", change))]
    assert call(arguments, monkeypatch) == TRAINING
    (line,) = capsys.readouterr().err.splitlines()
    assert "the model is not finite" in line


def test_a_run_that_cannot_start_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "run"
    assert call([*RUN, "--set", "model.outputs=9", "--out", str(out)], monkeypatch) == MODEL
    assert not out.parent.exists()


def test_an_unexpected_error_is_one_line_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fedtempo.cli.runs.read", lambda *arguments: 1 / 0)
    assert call(RUN, monkeypatch) == 70
    (line,) = capsys.readouterr().err.splitlines()
    assert "unexpected ZeroDivisionError" in line
    assert "--debug" in line


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(24, "Too many open files"), "the system refused: [Errno 24] Too many open files"),
        (MemoryError(), "the system refused: not enough memory"),
    ],
)
def test_what_the_system_refuses_is_no_bug(
    error: Exception, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*arguments: object) -> None:
        raise error

    monkeypatch.setattr("fedtempo.cli.runs.read", refused)
    assert call(RUN, monkeypatch) == 6
    assert capsys.readouterr().err == f"fedtempo: {words}\n"


def test_the_real_program_fails_in_one_line() -> None:
    done = subprocess.run(
        [*PROGRAM, *RUN, "--set", "coohrt=2"], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout) == (CONFIG, "")
    assert done.stderr == "fedtempo: setting 'coohrt' is not known. Did you mean 'cohort'?\n"


def test_control_c_is_one_line_and_130() -> None:
    endless = ["run", str(EXAMPLE), "--set", "rounds=1000000", "--set", "evaluation.every=1000000"]
    process = fedtempo(*endless)
    try:
        first = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert "round 1/1000000" in first
    assert (process.returncode, out) == (INTERRUPTED, "")
    assert error == "fedtempo: interrupted\n"
