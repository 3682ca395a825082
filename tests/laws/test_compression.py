"""Laws of compression: nothing is lost, nothing is remembered of what was refused, and no backend matters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import fedtempo as ft
from fedtempo import algorithms as fl
from fedtempo.params import Params
from tests import zoo

CLIENTS = zoo.data("mlp").clients.tolist()
EVERYTHING = [ft.compress.top_k(1.0), ft.compress.top_k(1.0, feedback="none"), ft.compress.random_k(1.0)]


def run(algorithm: ft.Algorithm, **changes: Any) -> ft.Result:
    settings: dict[str, Any] = {
        "model": zoo.model("mlp"),
        "data": zoo.data("mlp"),
        "rounds": 4,
        "cohort": 4,
        "batch_size": 4,
        "seed": 3,
        "evaluation": None,
        "backend": "serial",
        "dtype": torch.float64,
    }
    return ft.run(algorithm=algorithm, **{**settings, **changes})


def memory(kept: Params) -> dict[str, torch.Tensor]:
    return {n.removeprefix("_compression/delta/"): t for n, t in kept.items() if n.startswith("_compression/delta/")}


@pytest.mark.parametrize(
    ("name", "rule"),
    list(zip(["fednar", "fedexp", "ditto", "fedrecon", "batchnorm"], [*EVERYTHING, *EVERYTHING[:2]], strict=True)),
    ids=str,
)
def test_all_numbers_is_no_compression_bit_for_bit(name: str, rule: ft.compress.Compressor) -> None:
    """k = d up and down, in the model, in what clients keep, in the bytes; the memory stays zero."""
    algorithms = {
        "fednar": lambda **c: fl.fednar(fl.scaffold(lr=0.1, steps=3), weight_decay=0.1, max_norm=0.5, **c),
        "fedexp": lambda **c: fl.fedexp(lr=0.1, steps=3, **c),
        "ditto": lambda **c: fl.ditto(lr=0.1, steps=3, **c),
        "fedrecon": lambda **c: fl.fedrecon(lr=0.1, head_lr=0.2, head_steps=2, body_steps=2, **c),
        "batchnorm": lambda **c: fl.fedavg(lr=0.1, steps=2, **c),
    }
    kind = {"model": zoo.model("batchnorm"), "data": zoo.data("batchnorm")} if name == "batchnorm" else {}
    down = ft.compress.top_k(1.0, feedback="none")
    plain = run(algorithms[name](), rounds=3, **kind)
    sent = run(algorithms[name](compress=rule, compress_down=down), rounds=3, **kind)
    assert all(torch.equal(plain.params[n], sent.params[n]) for n in plain.params)
    assert plain.costs == sent.costs
    for client in CLIENTS:
        before, after = plain.client_state(client, "last"), sent.client_state(client, "last")
        assert all(torch.equal(before[n], after[n]) for n in before)
        assert not any(bool(t.any()) for t in memory(after).values())


@pytest.mark.parametrize(
    "rule",
    [
        ft.compress.top_k(0.1),
        ft.compress.sign(),
        ft.compress.qsgd(3, feedback="ef14"),
        ft.compress.random_k(0.2, feedback="ef14"),
    ],
    ids=repr,
)
def test_what_was_sent_and_the_memory_are_what_was_wanted(
    rule: ft.compress.Compressor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For every client: sum of sent + memory = sum of wanted."""
    from fedtempo.backends import collect

    wanted: dict[int, Params] = {}
    sent: dict[int, Params] = {}
    real = collect.compress_upload

    def watched(federation, groups, kept, round_number, client):
        result = real(federation, groups, kept, round_number, client)
        for sums, delta in ((wanted, groups["delta"]), (sent, result.groups["delta"])):
            so_far = sums.setdefault(client, {n: torch.zeros_like(t) for n, t in delta.items()})
            sums[client] = {n: so_far[n] + t for n, t in delta.items()}
        return result

    monkeypatch.setattr(collect, "compress_upload", watched)
    result = run(fl.fedavg(lr=0.1, steps=3, compress=rule))
    assert len(wanted) == 6
    for client, total in wanted.items():
        left = memory(result.client_state(client, "last"))
        assert any(bool(t.any()) for t in left.values())
        for name, tensor in total.items():
            torch.testing.assert_close(sent[client][name] + left[name], tensor, rtol=0, atol=1e-12)


def test_a_refused_upload_leaves_the_memory_as_it_was() -> None:
    """A client remembers what its last accepted upload left; refused ones were charged all the same."""
    algorithm = fl.fedavg(lr=0.1, steps=3, compress=ft.compress.top_k(0.1))
    result = run(algorithm, faults=ft.Faults(nan=0.5), rounds=6, states=True)
    last: dict[int, Params] = {}
    for report in result.history:
        assert report.state is not None
        refused = {failure.client for failure in report.failures}
        assert refused.isdisjoint(report.state.personal) and set(report.state.personal) == set(report.clients)
        last |= report.state.personal
    late = {f.client for f in result.history[-1].failures} & last.keys()
    assert late  # accepted once, refused in the end
    for client in late:
        kept = result.client_state(client, "last")
        assert any(bool(t.any()) for t in memory(kept).values())
        assert all(torch.equal(kept[name], tensor) for name, tensor in last[client].items())
    assert result.costs.bytes == run(algorithm, rounds=6).costs.bytes


def test_an_abandoned_round_leaves_every_memory_as_it_was() -> None:
    algorithm = fl.fedavg(lr=0.1, steps=3, compress=ft.compress.top_k(0.1))
    result = run(algorithm, faults=ft.Faults(nan=0.5), quorum=4, rounds=3)
    assert all(report.abandoned for report in result.history)
    assert not any(bool(t.any()) for client in CLIENTS for t in memory(result.client_state(client, "last")).values())


def test_ef21s_server_keeps_the_mean_over_all_clients() -> None:
    """mean d = (1/N) sum d_i, absent clients counted."""
    rule = ft.compress.chain([ft.compress.random_k(0.3), ft.compress.qsgd(5)], feedback="ef21")
    result = run(fl.fedavg(lr=0.1, steps=3, compress=rule), cohort=3, rounds=5)
    for name, estimate in result.server_state["estimate"].items():
        kept = [memory(result.client_state(client, "last"))[name] for client in CLIENTS]
        torch.testing.assert_close(estimate, torch.stack(kept).mean(0), rtol=0, atol=1e-12)


def test_ef21_of_everything_with_everybody_is_fedavg() -> None:
    plain = run(fl.fedavg(lr=0.1, steps=3), cohort=6)
    sent = run(fl.fedavg(lr=0.1, steps=3, compress=ft.compress.top_k(1.0, feedback="ef21")), cohort=6)
    for name, tensor in plain.params.items():
        torch.testing.assert_close(sent.params[name], tensor, rtol=0, atol=1e-12)


def test_a_memory_pays_back() -> None:
    """On a quadratic, one number of five without a memory stalls at a distance; with a memory it comes closer."""
    rng = np.random.default_rng(0)
    data = ft.data.FederatedData.from_clients(
        [(rng.standard_normal((20, 5)), rng.standard_normal(20)) for _ in range(4)]
    )
    settings = {"data": data, "model": torch.nn.Linear(5, 1), "cohort": 4, "batch_size": None, "rounds": 60}
    settings |= {"loss": lambda outputs, targets: (outputs[:, 0] - targets) ** 2}
    rules = {"exact": None, "ef14": ft.compress.top_k(0.2), "none": ft.compress.top_k(0.2, feedback="none")}
    ends = {n: run(fl.fedavg(lr=0.1, steps=2, compress=rule), **settings).params for n, rule in rules.items()}
    gaps = {
        n: sum(float((t - ends["exact"][name]).square().sum()) for name, t in end.items()) ** 0.5
        for n, end in ends.items()
    }
    assert gaps["ef14"] < 0.6 * gaps["none"]


def test_a_stored_run_goes_on_with_its_memories(tmp_path) -> None:
    algorithm = fl.fedavg(lr=0.1, steps=3, compress=ft.compress.top_k(0.1), compress_down=ft.compress.rounding(6))
    whole = run(algorithm)
    run(algorithm, rounds=2, out=tmp_path / "run")
    assert run(algorithm, out=tmp_path / "run", resume=True).digest() == whole.digest()


class Halves:
    """A compressor of a user's own: numbers in half precision, behind a mask that is drawn from the key."""

    @staticmethod
    def encode(values: torch.Tensor, key: int) -> dict[str, torch.Tensor]:
        return {"half": values.to(torch.float16)}

    @staticmethod
    def decode(parts: dict[str, torch.Tensor], form: ft.compress.FlatForm, key: int) -> torch.Tensor:
        keep = np.random.default_rng(key).random(form.size) < 0.7
        return parts["half"].to(form.dtype) * torch.from_numpy(keep).to(form.dtype)


HALVES = ft.compress.Compressor(Halves.encode, Halves.decode, feedback="ef14", passes_on="half")


OWN = {
    "own": HALVES,
    "last": ft.compress.chain([ft.compress.top_k(0.3), HALVES]),
    "first": ft.compress.chain([HALVES, ft.compress.sign()]),
}


@pytest.mark.parametrize("rule", OWN.values(), ids=OWN)
def test_a_users_own_compressor_is_as_good_as_ours(rule: ft.compress.Compressor) -> None:
    """The same bits in worker processes, 1e-12 side by side, and the contract of an algorithm."""
    algorithm = fl.fedavg(lr=0.1, steps=3, compress=rule)
    here = run(algorithm)
    assert run(algorithm, backend="processes", workers=2, block=2).digest() == here.digest()
    lanes = run(algorithm, backend="vectorised")
    assert all(float((here.params[n] - lanes.params[n]).abs().max()) < 1e-12 for n in here.params)
    assert here.costs.bytes_up < here.costs.bytes_down / 3.9


def test_a_private_mean_of_compressed_uploads_is_clipped_after_decoding() -> None:
    """The server clips what it decodes, so what a compressor does cannot make an upload count for more."""
    with pytest.warns(UserWarning, match="INSECURE"):
        aggregator = ft.robust.private_mean(0.01, 0.001, noise_seed=3)
    result = run(
        fl.fedavg(lr=0.5, steps=3, compress=ft.compress.random_k(0.05)),
        aggregator=aggregator, cohort=ft.cohort.bernoulli(0.9), rounds=1,
    )  # fmt: skip
    moved = sum(float((result.params[n] - t).square().sum()) for n, t in result.experiment.first_shared.items()) ** 0.5
    assert 0 < moved <= 0.0101 * 6 / (0.9 * 6)
