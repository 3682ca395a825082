"""A run's identity is its content: what decides its numbers, told apart and recognised in another process."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import fedtempo as ft
from fedtempo.client import transforms
from fedtempo.errors import ConfigError, OutputError
from fedtempo.support.identity import Unstable, identity_of
from tests.programs import script_ended
from tests.waiting import PATIENCE
from tests.zoo import ALGORITHMS

RATE = 0.1


def warm_up(now: ft.Now) -> float:
    """Five rounds up to the full rate."""
    return RATE * min(1.0, (now.round + 1) / 5)


def data(shift: float = 0.0) -> ft.data.FederatedData:
    rng = np.random.default_rng(0)
    return ft.data.FederatedData.from_clients(
        [(rng.standard_normal((12, 6)) + shift, rng.integers(0, 4, 12)) for _ in range(4)]
    )


def settings(**changes):
    given = {
        "model": ft.models.mlp(6, [5], 4),
        "data": data(),
        "algorithm": ft.algorithms.fedavg(lr=0.1, steps=2),
        "rounds": 3,
        "evaluation": None,
    }
    return {**given, **changes}


def begun(folder, **changes):
    """A run of three rounds that was left after its first."""
    rounds = ft.train(**settings(**changes), out=folder)
    next(rounds)
    rounds.close()


def resumed(folder, **changes):
    return ft.run(**settings(**changes), out=folder, resume=True)


def custom(lr: float = 0.1, steps: int = 2, direction: ft.Transform = transforms.identity) -> ft.Algorithm:
    return ft.Algorithm((ft.Phase(ft.length(steps), ft.schedules.constant(lr), direction=direction),))


def test_unnamed_algorithms_are_told_apart(tmp_path):
    begun(tmp_path / "a", algorithm=custom(0.1, 2))
    assert resumed(tmp_path / "a", algorithm=custom(0.1, 2)).history[-1].round == 2
    begun(tmp_path / "b", algorithm=custom(0.1, 2))
    with pytest.raises(OutputError, match=r"algorithm\.phases \(content\) must be that of the stored run"):
        resumed(tmp_path / "b", algorithm=custom(1.0, 7))


def test_another_direction_is_another_run(tmp_path):
    begun(tmp_path / "a")
    plain = ft.algorithms.fedavg(lr=0.1, steps=2)
    other = plain.with_direction(lambda d: transforms.chain(d, transforms.scale(0.5)))
    with pytest.raises(OutputError, match=r"algorithm\.phases"):
        resumed(tmp_path / "a", algorithm=other)


def test_changed_data_values_are_another_run(tmp_path):
    begun(tmp_path / "a")
    with pytest.raises(OutputError, match="data must be that of the stored run"):
        resumed(tmp_path / "a", data=data(shift=1e-6))


def test_another_loss_of_the_same_name_is_another_run(tmp_path):
    def loss(outputs, targets):
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    first = loss

    def loss(outputs, targets):
        return 2 * nn.functional.cross_entropy(outputs, targets, reduction="none")

    begun(tmp_path / "a", loss=first)
    with pytest.raises(OutputError, match=r"loss \(content\)"):
        resumed(tmp_path / "a", loss=loss)


def test_another_code_of_the_model_is_another_run(tmp_path):
    def module(scale: float) -> nn.Module:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(6, 4)
                self.scale = scale
                nn.init.zeros_(self.layer.weight)
                nn.init.zeros_(self.layer.bias)

            def forward(self, x):
                return self.scale * self.layer(x)

        return Net()

    begun(tmp_path / "a", model=module(1.0))
    with pytest.raises(OutputError, match="model must be that of the stored run"):
        resumed(tmp_path / "a", model=module(2.0))


SCRIPT = """
    import sys
    import numpy as np
    import fedtempo as ft

    PEAK = {peak}

    def warm_up(now):
        # comments do not count
        return PEAK * min(1.0, (now.round + 1) / 5)

    rng = np.random.default_rng(0)
    clients = [(rng.standard_normal((12, 6)), rng.integers(0, 4, 12)) for _ in range(4)]
    rounds = ft.train(
        model=ft.models.mlp(6, [5], 4), data=ft.data.FederatedData.from_clients(clients), rounds=3,
        algorithm=ft.algorithms.fedavg(lr=warm_up, steps=2), evaluation=None,
        out=sys.argv[1], resume=sys.argv[2] == "again",
    )
    for report in rounds:
        if sys.argv[2] == "first":
            break
    print("done")
"""


def test_a_schedule_that_is_a_function_resumes_in_a_new_process(tmp_path):
    script, run = tmp_path / "script.py", str(tmp_path / "run")
    script.write_text(textwrap.dedent(SCRIPT.format(peak=0.1)))
    assert script_ended(script, run, "first", directory=tmp_path).returncode == 0
    changed = tmp_path / "changed.py"
    changed.write_text(textwrap.dedent(SCRIPT.format(peak=0.2)))
    other = script_ended(changed, run, "again", directory=tmp_path)
    assert other.returncode == 1 and "algorithm.phases (content) must be that of the stored run" in other.stderr
    # A new interpreter: its hashes of strings and its addresses are not those of the process that began the run.
    command = [sys.executable, str(script), run, "again"]
    again = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE)
    assert again.returncode == 0, again.stderr


def test_a_lambda_over_a_mutable_object_is_refused_with_out_alone(tmp_path):
    box = {"lr": 0.1}
    algorithm = ft.algorithms.fedavg(lr=lambda now: box["lr"], steps=1)
    assert ft.run(**settings(algorithm=algorithm)).history
    with pytest.raises(ConfigError, match=r"out must be left out .* 'box' in .*<lambda>.* is a dict, .* tuples"):
        ft.run(**settings(algorithm=algorithm), out=tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_an_open_file_has_no_identity(tmp_path):
    with (tmp_path / "f").open("w") as file, pytest.raises(Unstable, match="TextIOWrapper"):
        identity_of(lambda now: file.tell())
    with pytest.raises(Unstable, match="Generator"):
        identity_of(partial(max, torch.Generator()))


@dataclass(frozen=True)
class Point:
    x: float
    label: str = "p"


def test_values_count_by_structure_and_value():
    assert identity_of(Point(1.0)) == identity_of(Point(1.0)) != identity_of(Point(2.0))
    assert identity_of(torch.ones(3)) != identity_of(torch.ones(3, dtype=torch.float64))
    assert identity_of({"a": 1, "b": 2}) == identity_of({"b": 2, "a": 1})
    assert identity_of([1, 2]) != identity_of([2, 1])
    assert identity_of({3, 1, "x"}) == identity_of({"x", 1, 3})
    assert identity_of(partial(warm_up)) != identity_of(warm_up)
    one, other = (lambda now: 0.1), (lambda now: 0.2)
    assert identity_of(one) != identity_of(other)
    loop: list[object] = []
    loop.append(loop)
    assert identity_of(loop) == identity_of(loop)


def test_a_constant_that_a_function_uses_is_part_of_it(monkeypatch):
    before = identity_of(warm_up)
    monkeypatch.setitem(globals(), "RATE", 0.2)
    assert identity_of(warm_up) != before


def test_every_algorithm_has_an_identity_of_its_own():
    found = {identity_of(replace(algorithm, name="", settings={})) for algorithm in ALGORITHMS.values()}
    assert len(found) == len(ALGORITHMS)


def test_a_large_mapped_column_is_sampled_and_one_in_memory_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr("fedtempo.support.identity.walk.READ_IN_FULL", 2**20)
    path = tmp_path / "column.npy"
    np.save(path, np.zeros(2**25, dtype=np.float32))
    mapped = np.load(path, mmap_mode="r+")
    before = identity_of(mapped)
    mapped[0] = 1.0
    assert identity_of(mapped) != before
    whole = np.zeros(2**25, dtype=np.float32)
    before = identity_of(whole)
    whole[12_345_678] = 1.0
    assert identity_of(whole) != before
