"""Aggregators: laws and numbers worked by hand, and the private mean's clip, noise and epsilon."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo.server import robust

ROWS = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 1.0], [4.0, 0.0], [100.0, -50.0]], dtype=torch.float64)
ONES = torch.ones(5)


def combined(aggregator: robust.Aggregator, rows: torch.Tensor = ROWS) -> list[float]:
    assert aggregator.combine is not None
    return aggregator.combine({"w": rows}, torch.ones(len(rows)))["w"].tolist()


def test_median_of_each_coordinate() -> None:
    assert combined(robust.median()) == [3.0, 0.0]
    assert combined(robust.median(), ROWS[:4]) == [2.5, 0.0]


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_the_median_is_torchs_quantile_and_takes_tensors_of_any_size(count: int) -> None:
    """Torch's own takes neither a tensor without numbers nor one of 16 million."""
    rows = torch.randn(count, 50, generator=torch.Generator().manual_seed(count))
    middle = robust.median().combine({"rows": rows, "none": torch.zeros(count, 0, 3)}, torch.ones(count))  # type: ignore[misc]
    assert middle["rows"].equal(torch.quantile(rows.double(), 0.5, dim=0).float())
    assert middle["none"].shape == (0, 3)


def test_trimmed_mean_drops_both_ends() -> None:
    """One of five from each end: (2 + 3 + 4) / 3 and (0 + 0 + 0) / 3."""
    assert combined(robust.trimmed_mean(0.2)) == pytest.approx([3.0, 0.0])
    assert combined(robust.trimmed_mean(0.0)) == pytest.approx(ROWS.mean(0).tolist())


def test_krum_takes_one_of_the_crowd() -> None:
    """n = 5, one faulty: each row's two nearest others. Row 2 = (2, 0) has squared distances 1 and 2 (to 1 and 3)."""
    assert combined(robust.krum(1)) == [2.0, 0.0]
    with pytest.raises(ft.ConfigError, match="must see more than"):
        combined(robust.krum(3))


def test_krum_takes_tensors_of_any_shape() -> None:
    """A parameter that is one number, such as a temperature, ended the run with an IndexError of torch."""
    rows = {"scale": torch.tensor([1.0, 2.0, 3.0, 4.0, 100.0]), "none": torch.zeros(5, 0, 3)}
    found = robust.krum(1).combine(rows, ONES)  # type: ignore[misc]
    assert found["scale"] == 2.0
    assert found["none"].shape == (0, 3)


def test_bounded_displacements_are_exactly_as_long_as_allowed() -> None:
    groups = {"delta": {"w": torch.tensor([3.0, 4.0])}}
    assert torch.equal(robust.norm_bounded(10.0).bounded(groups)["delta"]["w"], groups["delta"]["w"])
    assert robust.norm_bounded(1.0).bounded(groups)["delta"]["w"].norm() == pytest.approx(1.0)
    assert robust.plain_mean.bounded(groups) is groups


def run(digits: ft.data.FederatedData, **settings: Any) -> ft.Result:
    defaults = {"rounds": 3, "cohort": 6, "batch_size": 16, "evaluation": None, "backend": "serial"}
    algorithm = ft.algorithms.fedavg(lr=0.1, steps=3)
    return ft.run(model=ft.models.mlp(64, [8], 10), data=digits, algorithm=algorithm, **{**defaults, **settings})


@pytest.mark.parametrize(
    "aggregator", [robust.median(), robust.krum(1), robust.trimmed_mean(0.2), robust.norm_bounded(0.1)]
)
def test_the_same_wherever_clients_run(aggregator: robust.Aggregator, digits: ft.data.FederatedData) -> None:
    serial = run(digits, aggregator=aggregator, dtype=torch.float64)
    assert serial.digest() == run(digits, aggregator=aggregator, dtype=torch.float64, backend="processes").digest()
    side = run(digits, aggregator=aggregator, dtype=torch.float64, backend="vectorised")
    for name, value in serial.params.items():
        torch.testing.assert_close(side.params[name], value, rtol=1e-11, atol=1e-12)


def test_a_bound_out_of_reach_is_the_plain_mean(digits: ft.data.FederatedData) -> None:
    assert run(digits, aggregator=robust.norm_bounded(1e6)).digest() == run(digits).digest()


def test_median_shrugs_off_a_million(digits: ft.data.FederatedData) -> None:
    settings = {"faults": ft.Faults(huge=0.2), "admission": ft.Admission(checks=False), "rounds": 5}
    calm, wild = run(digits, aggregator=robust.median(), **settings), run(digits, **settings)
    assert max(p.abs().max() for p in calm.params.values()) < 10
    assert max(p.abs().max() for p in wild.params.values()) > 100


@pytest.mark.parametrize("quorum", [1, 5])
def test_a_round_with_too_few_uploads_for_krum_is_abandoned(quorum: int, digits: ft.data.FederatedData) -> None:
    """Krum with one faulty client takes four uploads; a higher quorum of the user's stays."""
    settings = {"aggregator": robust.krum(1), "faults": ft.Faults(drop=0.4), "rounds": 12, "quorum": quorum}
    result = run(digits, **settings)
    assert [r.abandoned for r in result.history] == [len(r.clients) < max(4, quorum) for r in result.history]
    assert {r.abandoned for r in result.history} == {True, False}


def test_the_private_means_noise_is_as_stated(digits: ft.data.FederatedData) -> None:
    """With rate 0 only the noise moves the model: deviation noise * bound / |S| on every coordinate, within 5 %."""
    algorithm = ft.algorithms.fedavg(lr=0.0, steps=1)
    result = ft.run(
        model=ft.models.mlp(64, [64], 10),
        data=digits,
        algorithm=algorithm,
        rounds=1,
        cohort=5,
        evaluation=None,
        aggregator=robust.private_mean(2.0, 1.5),
        dtype=torch.float64,
    )
    first = result.experiment.first_shared
    moved = np.concatenate([(p - first[n]).flatten().numpy() for n, p in result.params.items()])
    assert moved.std() == pytest.approx(1.5 * 2.0 / 5, rel=0.05)
    assert abs(moved.mean()) < 4 * 0.6 / math.sqrt(len(moved))


def test_private_means_need_uniform_weights(digits: ft.data.FederatedData) -> None:
    with pytest.raises(ft.ConfigError, match="'uniform' for a private mean"):
        ft.run(
            model=ft.models.mlp(64, [8], 10),
            data=digits,
            algorithm=ft.algorithms.fedavg(lr=0.1, steps=1, weighting="samples"),
            rounds=1,
            aggregator=robust.private_mean(1.0, 1.0),
        )


def test_epsilon_against_the_formula_without_sampling() -> None:
    """All clients every round: Renyi divergence alpha T / (2 noise^2); accountants convert it better than by hand."""
    pytest.importorskip("opacus", reason="the privacy extra is not installed")
    noise, rounds, delta = 5.0, 10, 1e-5
    rho = rounds / (2 * noise**2)
    simple = rho + 2 * math.sqrt(rho * math.log(1 / delta))
    ours = robust.epsilon(noise, rounds, 1.0, delta)
    assert 0.7 * simple < ours <= simple
    assert robust.epsilon(noise, rounds, 0.1, delta) < ours
    assert robust.epsilon(2 * noise, rounds, 1.0, delta) < ours


WRONG = {
    "trims everything": lambda: robust.trimmed_mean(0.5),
    "bound of zero": lambda: robust.norm_bounded(0.0),
    "negative count": lambda: robust.krum(-1),
    "no noise": lambda: robust.private_mean(1.0, 0.0),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_settings_are_refused(name: str) -> None:
    with pytest.raises(ft.ConfigError):
        WRONG[name]()


def test_a_share_is_cut_off_whatever_its_product_rounds_to() -> None:
    """0.29 * 100 is 28.999... in floating point. So 29 values are cut at either end, here 29 times a million."""
    combine = robust.trimmed_mean(0.29).combine
    assert combine is not None
    values = torch.arange(100.0, dtype=torch.float64)
    values[71:] = 1e6  # 29 of them
    (mean,) = combine({"w": values}, torch.ones(100)).values()
    assert float(mean) == (29 + 70) / 2
