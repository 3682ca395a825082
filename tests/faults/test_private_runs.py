"""Private runs: the key stays in the server's store, and what is published is a function of the noised means alone."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo.contracts import ContractError
from fedtempo.report.stored import read_run
from fedtempo.server import robust
from fedtempo.server.exact_sums import empty_sum
from fedtempo.server.noise import Secret, fresh_secret, grid_of, noised
from fedtempo.server.private_mean import clipped
from fedtempo.training.state import State, state_from_bytes, state_to_bytes
from fedtempo.training.storage.on_disk import DATABASE

SECURE = robust.private_mean(0.5, 1.0)


def insecure(noise_seed: int = 0, noise: float = 1.0) -> robust.Aggregator:
    with pytest.warns(UserWarning, match="INSECURE"):
        return robust.private_mean(0.5, noise, noise_seed=noise_seed)


def settings(digits: ft.data.FederatedData, **changes: Any) -> dict[str, Any]:
    return {
        "model": ft.models.mlp(64, [8], 10),
        "data": digits,
        "algorithm": ft.algorithms.fedavg(lr=0.1, steps=3),
        "rounds": 4,
        "cohort": 6,
        "batch_size": 16,
        "evaluation": ft.Evaluation(every=2),
        "aggregator": SECURE,
        "backend": "serial",
        **changes,
    }


def kept_key(folder: Path) -> bytes:
    import sqlite3

    connection = sqlite3.connect(folder / DATABASE)
    (numbers,) = connection.execute("SELECT numbers FROM shared ORDER BY round DESC LIMIT 1").fetchone()
    connection.close()
    return bytes.fromhex(json.loads(numbers)["secret"])


# ---------------------------------------------------------------------- the key


def test_two_runs_of_one_seed_differ_and_share_no_key(digits: ft.data.FederatedData, tmp_path: Path) -> None:
    first, second = (ft.run(**settings(digits, out=tmp_path / name)) for name in "ab")
    assert first.digest() != second.digest()
    assert kept_key(tmp_path / "a") != kept_key(tmp_path / "b")


def test_the_key_is_in_the_servers_store_and_nowhere_else(digits: ft.data.FederatedData, tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = ft.run(**settings(digits, out=out, trackers=["csv", "jsonl"]))
    key = kept_key(out)
    others = [path for path in out.rglob("*") if path.is_file() and not path.name.startswith(DATABASE)]
    assert {"metrics.jsonl", "metrics.csv", "summary.json", "report.html"} <= {path.name for path in others}
    for path in others:
        content = path.read_bytes()
        assert key not in content and key.hex().encode() not in content, path
    assert key.hex() not in repr(result) and key.hex() not in repr(Secret(key)) and str(key) not in repr(Secret(key))
    assert not (out / DATABASE).stat().st_mode & 0o077


def test_a_resumed_private_run_has_the_bits_of_the_uninterrupted_one(
    digits: ft.data.FederatedData, tmp_path: Path
) -> None:
    """Copies of the folder after each round, each resumed: the key in it decides noise and cohorts that are to come."""
    rounds = ft.train(**settings(digits, out=tmp_path / "whole"))
    for number in itertools.count():
        try:
            next(rounds)
        except StopIteration as stop:
            whole: ft.Result = stop.value
            break
        shutil.copytree(tmp_path / "whole", tmp_path / f"after {number}")
    for number in (0, 2):
        resumed = ft.run(**settings(digits, out=tmp_path / f"after {number}", resume=True))
        assert resumed.digest() == whole.digest()
        assert resumed.privacy == whole.privacy


def test_a_stored_run_without_its_key_is_refused() -> None:
    state = State({"w": torch.zeros(2)}, {}, secret=fresh_secret())
    tensors, numbers = state_to_bytes(state)
    assert state_from_bytes(tensors, numbers, state).secret == state.secret
    without = json.dumps({name: value for name, value in json.loads(numbers).items() if name != "secret"})
    with pytest.raises(ft.StoreError, match="the key of its private mean"):
        state_from_bytes(tensors, without, state)


def test_the_same_sum_has_the_same_noise_and_another_sum_another() -> None:
    """A round repeated from the same uploads tells nothing new; of different ones the difference does not cancel."""
    secret, sums = fresh_secret(), {"w": torch.arange(1000, dtype=torch.float64)}
    once, again = noised(sums, 1.0, secret, 3), noised(sums, 1.0, secret, 3)
    assert torch.equal(once["w"], again["w"])
    other = {"w": sums["w"] + 2.0**-20}
    for changed in (noised(other, 1.0, secret, 3), noised(sums, 1.0, secret, 4), noised(sums, 1.0, fresh_secret(), 3)):
        assert (changed["w"] - once["w"]).std().item() == pytest.approx(2**0.5, rel=0.2)  # nine deviations


def test_sum_and_noise_lie_on_one_grid() -> None:
    """Low bits tell nothing: whatever the sum was, the result is a multiple of a power of two."""
    deviation, random = 0.37, torch.Generator().manual_seed(0)
    sums = {"w": torch.randn(5000, generator=random, dtype=torch.float64) * 3}
    steps = noised(sums, deviation, fresh_secret(), 0)["w"] / grid_of(deviation)
    assert torch.equal(steps, torch.round(steps))
    assert 2**30 <= deviation / grid_of(deviation) < 2**31


@pytest.mark.parametrize("length", [1e-30, 0.3, 0.5, 7.0, 1e30])
def test_clipping_leaves_room_for_the_grid(length: float) -> None:
    """However long, the upload after rounding to the grid is no longer than the bound; a short one is not shortened."""
    bound, noise = 0.5, 2.0
    vector = torch.randn(4096, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    vector = {"w": vector / vector.norm() * length}
    short = clipped(vector, bound, noise)["w"]
    grid = grid_of(noise * bound)
    assert (torch.round(short / grid) * grid).norm() <= bound
    assert torch.equal(short, vector["w"]) if length < 0.4 else short.norm() > 0.49 * min(1.0, 2 * length)


def test_clipping_leaves_room_for_the_rounding_of_exact_sums() -> None:
    """Exact sums round every upload to multiples of 2^-58. Of a tiny bound that is no longer nothing."""
    bound = 2.0**-44
    vector = {"w": torch.full((4096,), 1.0, dtype=torch.float64)}
    total = empty_sum(vector["w"])
    total.add(clipped(vector, bound, 1.0)["w"])
    assert 0.99 * bound < total.value.norm() <= bound
    with pytest.raises(ft.ConfigError, match="bound must be larger than the rounding"):
        clipped(vector, 2.0**-54, 1.0)


def test_the_key_is_stored_with_the_first_round(digits: ft.data.FederatedData, tmp_path: Path) -> None:
    """Rounds that wait for one transaction have been reported: a run that dies must not repeat them with a new key."""
    rounds = ft.train(**settings(digits, out=tmp_path / "run", commit_every=10))
    reported = [next(rounds).params for _ in range(3)]
    shutil.copytree(tmp_path / "run", tmp_path / "killed")
    rounds.close()
    again = ft.train(**settings(digits, out=tmp_path / "killed", commit_every=10, resume=True))
    repeated = {report.round: report.params for report in again}
    assert set(repeated) == {1, 2, 3}
    for number in (1, 2):
        assert all(torch.equal(repeated[number][name], value) for name, value in reported[number].items())


# ---------------------------------------------------------------------- what is published


def changed_clients(digits: ft.data.FederatedData) -> ft.data.FederatedData:
    """The same held-out clients; every training client has other rows and other labels."""
    columns = {name: np.array(values) for name, values in digits.columns.items()}
    for client in digits.clients.tolist():
        rows = digits.positions(client, "train")
        columns["x"][rows] = columns["x"][rows[::-1]] * 0.5
        columns["y"][rows] = 9 - columns["y"][rows]
    return replace(digits, columns=columns)


EASIER = pytest.mark.slow("who takes part is no secret; cohorts that are drawn run every time")


def fewer_rows(digits: ft.data.FederatedData) -> ft.data.FederatedData:
    """Every training client has one training row less."""
    bounds = np.array(digits.bounds)
    bounds[digits.clients, 0] += 1
    return replace(digits, bounds=bounds)


@pytest.mark.parametrize("other", [changed_clients, fewer_rows])
@pytest.mark.parametrize("cohort", [6, pytest.param(1.0, marks=EASIER), ft.cohort.bernoulli(0.4)])
def test_all_that_is_published_follows_from_the_noised_means(
    digits: ft.data.FederatedData, tmp_path: Path, other: Any, cohort: Any
) -> None:
    """At rate 0 all uploads are 0 and the means are noise alone: then no byte may depend on the clients' data."""
    published = []
    for name, data in (("one", digits), ("other", other(digits))):
        out = tmp_path / name
        algorithm = ft.algorithms.ditto(lr=0.0, steps=2, personal_lr=0.1)
        changes = {"algorithm": algorithm, "cohort": cohort, "aggregator": insecure(), "trackers": ["csv", "jsonl"]}
        result = ft.run(**settings(data, out=out, **changes))
        files = {p.name: p.read_text() for p in out.iterdir() if p.suffix in (".jsonl", ".csv", ".json", ".html")}
        summary = json.loads(files.pop("summary.json"))
        del summary["finished"]
        page = re.sub(r"[0-9-]{10} [0-9:]{8} UTC", "", files.pop("report.html"))
        published.append((summary, page, files, result.digest(), repr(result)))
    assert published[0] == published[1]


def test_a_private_report_says_what_it_may(digits: ft.data.FederatedData, tmp_path: Path) -> None:
    result = ft.run(**settings(digits, out=tmp_path, cohort=ft.cohort.bernoulli(0.4)))
    for report in result.history:
        assert report.private and np.isnan(report.loss) and not report.failures and not report.measurements
        assert not len(report.clients) and report.costs.samples == 0 and report.costs.bytes > 0
        assert report.seconds == 0
    scores = result.scores
    assert scores is not None and len(scores.existing_after.clients) == 0 and len(scores.guiding.clients) == 4
    assert 0 <= scores.guiding.summary("accuracy")["mean"] <= 1
    assert result.table() is not None


def test_epsilon_is_in_the_result_the_summary_and_the_page(digits: ft.data.FederatedData, tmp_path: Path) -> None:
    pytest.importorskip("opacus", reason="the privacy extra is not installed")
    aggregator = robust.private_mean(0.5, 2.0, delta=1e-4)
    result = ft.run(**settings(digits, out=tmp_path, cohort=ft.cohort.bernoulli(0.25), aggregator=aggregator))
    privacy = result.privacy
    assert privacy is not None and privacy.epsilon == pytest.approx(robust.epsilon(2.0, 4, 0.25, 1e-4))
    assert (privacy.adjacency, privacy.sampling, privacy.delta) == ("add-remove", "poisson", 1e-4)
    stored = json.loads((tmp_path / "summary.json").read_text())["privacy"]
    assert stored["epsilon"] == privacy.epsilon and "Opacus" in stored["accountant"]
    page = (tmp_path / "report.html").read_text()
    for word in (f"epsilon {privacy.epsilon:.3g} at delta 0.0001", "add-remove", "Poisson sampling", "Opacus"):
        assert word in page and word in repr(result)
    assert read_run(tmp_path).facts["privacy"] == str(privacy)


def test_other_runs_promise_nothing(digits: ft.data.FederatedData) -> None:
    result = ft.run(**settings(digits, aggregator=robust.plain_mean))
    assert result.privacy is None and not result.history[0].private and result.history[0].loss > 0


def test_a_run_is_accounted_as_its_cohorts_are_drawn(digits: ft.data.FederatedData) -> None:
    """16 clients: 6 of them, everybody, lists in which nobody is twice in four rounds but one client."""
    pytest.importorskip("opacus", reason="the privacy extra is not installed")

    def promised(**changes: Any) -> robust.Guarantee:
        from fedtempo.training.prepare import prepare

        found = prepare(**settings(digits, **changes)).guarantee()
        assert found is not None and found.epsilon is not None
        return found

    fixed, full = promised(), promised(cohort=1.0)
    assert (fixed.sampling, fixed.adjacency, fixed.rates) == ("fixed-size", "replace-one", ((6 / 16, 4),))
    assert fixed.epsilon == robust.epsilon(1.0, 4, 6 / 16, fixed.delta, sampling="fixed-size")
    assert (full.sampling, full.adjacency) == ("none", "replace-one")
    assert full.epsilon == robust.epsilon(1.0, 4, 1.0, fixed.delta, sampling="none")
    members = digits.clients.tolist()
    written = promised(cohorts=[members[:4], members[4:8], [members[0], *members[8:11]], members[11:15]])
    assert (written.sampling, written.rates) == ("none", ((1.0, 2),))
    grows = promised(cohort=ft.schedules.from_config({"schedule": "per_round", "value": 3, "factor": 2.0}), rounds=3)
    assert grows.rates == ((3 / 16, 1), (6 / 16, 1), (12 / 16, 1))


def test_a_run_that_stops_early_is_charged_for_all_its_rounds(digits: ft.data.FederatedData) -> None:
    """When it stops depends on its models, so the guarantee is that of the rounds that it might have had."""
    pytest.importorskip("opacus", reason="the privacy extra is not installed")
    evaluation = ft.Evaluation(every=1, patience=1)
    changes = {"rounds": 60, "evaluation": evaluation, "algorithm": ft.algorithms.fedavg(lr=0.0, steps=1)}
    result = ft.run(**settings(digits, **changes, aggregator=robust.private_mean(0.5, 4.0)))
    assert result.stopped_early is not None and result.stopped_early < 60
    assert result.privacy == result.experiment.guarantee() and result.privacy is not None
    assert result.privacy.rounds == 60


def test_who_takes_part_does_not_follow_from_the_seed(digits: ft.data.FederatedData) -> None:
    """Personal tensors show who took part, and only the server has them: two runs of one seed ask others."""
    algorithm = ft.algorithms.ditto(lr=0.1, steps=1)
    asked = [
        {client for client, _ in ft.run(**settings(digits, algorithm=algorithm, rounds=2, cohort=5)).store.items()}
        for _ in range(4)
    ]
    assert len({frozenset(each) for each in asked}) > 1


def test_a_round_that_nobody_came_to_is_noise_over_the_expected_cohort(digits: ft.data.FederatedData) -> None:
    """Neither the number that came nor an empty cohort shows: the divisor is 0.1 * 16 whoever came."""
    changes = {"model": ft.models.mlp(64, [200], 10), "cohort": ft.cohort.bernoulli(0.1), "rounds": 1}
    faults = ft.Faults(drop=1.0)
    result = ft.run(**settings(digits, **changes, faults=faults, evaluation=None))
    first = result.experiment.first_shared
    moved = torch.cat([(p - first[n]).flatten() for n, p in result.params.items()])
    assert moved.std().item() == pytest.approx(0.5 * 1.0 / 1.6, rel=0.03)
    assert not result.history[0].abandoned


def test_uploads_that_are_not_finite_count_as_nothing(digits: ft.data.FederatedData) -> None:
    """Whether a client's numbers are finite is a fact about its data: it shows in no report and stops no run."""
    result = ft.run(**settings(digits, algorithm=ft.algorithms.fedavg(lr=1e38, steps=3), rounds=1))
    assert not result.history[0].failures
    assert all(bool(torch.isfinite(p).all()) for p in result.params.values())


# ---------------------------------------------------------------------- what is refused

NORMALISED = torch.nn.Sequential(
    torch.nn.Flatten(), torch.nn.Linear(64, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 10)
)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "weights": (
        {"algorithm": ft.algorithms.fedavg(lr=0.1, steps=1, weighting="samples")},
        "weighting must be 'uniform'",
    ),
    "PFLEGO": ({"algorithm": ft.algorithms.pflego(head_lr=0.1, server_lr=0.1, steps=2)}, "weighting must be 'uniform'"),
    "SCAFFOLD": ({"algorithm": ft.algorithms.scaffold(lr=0.1, steps=1)}, "control variates"),
    "FedExP": ({"algorithm": ft.algorithms.fedexp(lr=0.1, steps=1)}, "squared norms"),
    "BatchNorm": ({"model": NORMALISED}, "BatchNorm's"),
    "nothing shared": ({"algorithm": ft.algorithms.local_only(lr=0.1, steps=1)}, "shares something"),
    "loss": (
        {"algorithm": ft.algorithms.fedavg(lr=ft.schedules.by_loss(0.1), steps=1)},
        "lr must not depend on loss_ratio",
    ),
    "plateaus": (
        {"algorithm": ft.algorithms.fedavg(lr=0.1, steps=ft.schedules.on_plateau(8, 0.5))},
        "steps must not depend on plateaus",
    ),
    "samples": ({"algorithm": ft.algorithms.fedavg(lr=ft.schedules.data_share(), steps=1)}, "total_samples"),
    "cohort": ({"cohort": ft.schedules.on_plateau(8, 0.5)}, "cohort must not depend on plateaus"),
    "median of norms": ({"admission": ft.Admission(max_ratio=3.0)}, "admission.max_ratio must be None"),
    "no checks": ({"admission": ft.Admission(checks=False)}, "admission.checks must be True"),
    "quorum": ({"quorum": 2}, "quorum must be 1"),
    "over-selection": ({"over_selection": 0.5}, "over_selection must be 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_leave_beside_the_mechanism_is_refused(name: str, digits: ft.data.FederatedData) -> None:
    changes, message = REFUSED[name]
    with pytest.raises(ft.ConfigError, match=message):
        next(ft.train(**settings(digits, **changes)))


def test_scores_of_training_clients_are_refused(clients: list[tuple[np.ndarray, np.ndarray]]) -> None:
    data = ft.data.FederatedData.from_clients(clients)
    given = {**settings(data), "model": ft.models.mlp(6, [5], 4), "cohort": 3}
    with pytest.raises(ft.ConfigError, match="evaluation must be None for a private mean"):
        ft.run(**given)
    assert ft.run(**{**given, "evaluation": None}).scores is None


@pytest.mark.parametrize("how", [{"standardise": True}, {"missing": "mean"}, {"missing": "zero"}])
def test_numbers_measured_on_everybodys_rows_are_refused(how: dict[str, Any]) -> None:
    """Through a mean over all rows, a client that never takes part moves everybody's upload, beyond any bound."""
    x = np.linspace(-1.0, 1.0, 24)
    x[3] = np.nan if "missing" in how else 0.5
    frame = {"user": np.repeat(list("abcdef"), 4), "x": x, "y": np.arange(24) % 2}
    data = ft.data.from_frame(frame, client="user", target="y", **how).split(new_clients=2, seed=0)
    given = {"model": ft.models.softmax_regression(1, 2), "cohort": 2, "rounds": 1, "evaluation": None}
    if how == {"missing": "zero"}:
        assert ft.run(**settings(data, **given)).privacy is not None
        return
    with pytest.raises(ft.ConfigError, match="data must not be scaled or filled with means of training rows"):
        ft.run(**settings(data, **given))


ALLOWED = {
    "norms bounded": {"admission": ft.Admission(max_norm=100.0)},
    "FedEM": {"algorithm": ft.algorithms.fedem(lr=0.1, steps=1, components=2, weighting="uniform")},
    "FedBN": {"model": NORMALISED, "algorithm": ft.algorithms.fedbn(lr=0.1, steps=1)},
    "BatchNorm at home": {
        "model": NORMALISED,
        "algorithm": ft.algorithms.fedavg(lr=0.1, steps=1, average_buffers=False),
    },
    "FedNAR": {
        "algorithm": ft.algorithms.fednar(ft.algorithms.fedavg(lr=0.1, steps=2), weight_decay=0.1, max_norm=0.1)
    },
    "FedAdam": {"algorithm": ft.algorithms.fedadam(lr=0.1, steps=1)},
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_sends_displacements_alone_is_not(name: str, digits: ft.data.FederatedData) -> None:
    result = ft.run(**settings(digits, **ALLOWED[name], rounds=2))
    assert set(result.experiment.federation.expected) == {"delta"}
    assert not set(result.history[0].measurements) & {"clipped_steps", "clipped_norm"}


# ---------------------------------------------------------------------- for tests only


def test_a_noise_seed_is_called_insecure_wherever_it_shows(digits: ft.data.FederatedData, tmp_path: Path) -> None:
    result = ft.run(**settings(digits, out=tmp_path, aggregator=insecure(7)))
    assert result.privacy is not None and not result.privacy.secure and result.privacy.epsilon == float("inf")
    shown = [repr(insecure(7)), repr(result), (tmp_path / "summary.json").read_text()]
    assert all("INSECURE" in text for text in (*shown, (tmp_path / "report.html").read_text()))
    assert result.digest() == ft.run(**settings(digits, aggregator=insecure(7))).digest()
    assert result.digest() != ft.run(**settings(digits, aggregator=insecure(8))).digest()


def test_the_contract_of_repeatable_runs_holds_with_a_noise_seed_only() -> None:
    algorithm = ft.algorithms.fedavg(lr=0.1, steps=3)
    ft.check_algorithm(algorithm, aggregator=insecure())
    with pytest.raises(ContractError, match="same bits for the same seed"):
        ft.check_algorithm(algorithm, aggregator=SECURE)


@pytest.mark.parametrize("backend", ["processes", "vectorised"])
def test_a_noise_seed_gives_the_serial_numbers_wherever_clients_run(
    backend: str, digits: ft.data.FederatedData
) -> None:
    given = {"aggregator": insecure(), "dtype": torch.float64}
    serial, other = (ft.run(**settings(digits, **given, backend=name)) for name in ("serial", backend))
    for name, value in serial.params.items():
        torch.testing.assert_close(other.params[name], value, rtol=1e-9, atol=1e-9)
