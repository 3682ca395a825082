"""What a run says without being asked: one line about its task and its weights, on standard error."""

from __future__ import annotations

import logging
import subprocess
import sys

import numpy as np
import pytest
from torch import nn

import fedtempo as ft

SCRIPT = """
import numpy as np, torch, fedtempo as ft
rows = np.random.default_rng(0).standard_normal((8, 3))
data = ft.data.FederatedData.from_clients([(rows, rows[:, 0])] * 2)
rounds = ft.train(model=torch.nn.Linear(3, 1), data=data, algorithm=ft.algorithms.fedavg(0.1, 1), rounds=9)
next(rounds)  # and the script ends in the middle of a run, which must not end in a traceback
"""
LINE = (
    "task: classification (guessed from targets that are integers), selected by accuracy (higher is better); "
    "first weights: drawn from the run's seed"
)


def said(caplog: pytest.LogCaptureFixture, **settings) -> list[tuple[int, str]]:
    rng = np.random.default_rng(3)
    clients = [(rng.standard_normal((8, 6)), rng.integers(0, 4, 8)) for _ in range(3)]
    data = ft.data.FederatedData.from_clients(clients, test=settings.pop("test", 0.25))
    caplog.clear()
    defaults = {"model": ft.models.mlp(6, [5], 4), "algorithm": ft.algorithms.fedavg(0.1, 1), "rounds": 2}
    with caplog.at_level(logging.INFO, "fedtempo"):
        ft.run(data=data, **{**defaults, **settings})
    return [(record.levelno, record.message) for record in caplog.records if record.name == "fedtempo"]


def test_a_plain_script_prints_the_guessed_task_and_the_weights_once():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    line = (
        "task: regression (guessed from targets that are floats), selected by loss (lower is better); "
        "first weights: as the module came; they do not depend on the run's seed\n"
    )
    assert done.stderr == line


def test_what_was_decided_is_a_warning_unless_something_else_shows_it(caplog, capsys):
    lines = said(caplog)
    assert [line for line in lines if line[0] == logging.WARNING] == [(logging.WARNING, LINE)]
    assert (logging.INFO, LINE) in said(caplog, progress=False)
    capsys.readouterr()
    for shown in ({"progress": True}, {"trackers": ["progress"]}):
        assert (logging.INFO, LINE) in said(caplog, **shown)
        printed = capsys.readouterr().err
        assert printed.count("task: classification (guessed") == printed.count("first weights: drawn") == 1
    given = said(caplog, loss="classification", init="model")
    assert any("task: classification (given)" in text and "as the module came" in text for _, text in given)


def test_a_note_of_another_kind_is_a_line_of_its_own(caplog):
    lines = said(caplog, algorithm=ft.algorithms.fedbn(0.1, 1))
    loud = [text for level, text in lines if level == logging.WARNING]
    assert loud[0] == LINE and loud[1].startswith("fedbn: the model has no") and len(loud) == 2


def test_what_looks_wrong_at_the_end_is_a_warning_unless_something_else_shows_it(caplog):
    wrong = "warning: no user has test rows: the scores are of rows that were trained on"
    assert said(caplog, test=0.0)[-1] == (logging.WARNING, wrong)
    assert said(caplog, test=0.0, progress=False)[-1] == (logging.INFO, wrong)


def test_progress_must_be_true_false_or_none(caplog):
    with pytest.raises(ft.ConfigError, match=r"progress must be true, false or None\. Got .loud."):
        said(caplog, progress="loud")


def test_checks_of_the_library_say_nothing(caplog):
    with caplog.at_level(logging.INFO, "fedtempo"):
        ft.check_model(lambda: nn.Linear(6, 4))
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
