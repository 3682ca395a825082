"""Randomness by seed and path: published numbers of SplitMix64, independence of who else draws, uniformity."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
import torch
from torch.func import vmap

from fedtempo.models.weights import seeded
from fedtempo.randomness import (
    client_keys,
    generator,
    generators_kept,
    random_bits,
    scramble,
    seed_for,
    seed_generators,
    uniform,
)


def test_the_stream_of_splitmix64() -> None:
    """The first numbers of SplitMix64 from seed 0, as its authors' code prints them."""
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    bits = random_bits(np.zeros(1, dtype=np.int64), 3)[0]
    assert bits.view(np.uint64).tolist() == published


def test_numpy_and_torch_draw_the_same_bits() -> None:
    counters = np.arange(-1000, 1000, dtype=np.int64) * 0x1234567890ABCDE
    assert np.array_equal(scramble(counters), scramble(torch.from_numpy(counters)).numpy())
    assert len(np.unique(scramble(counters))) == 2000  # it is a bijection


def test_a_clients_numbers_do_not_depend_on_who_else_draws() -> None:
    everybody = client_keys(3, np.arange(100), "batches", 4)
    assert np.array_equal(client_keys(3, np.array([17, 5]), "batches", 4), everybody[[17, 5]])
    assert len(np.unique(everybody)) == 100
    assert np.array_equal(random_bits(everybody, 6)[:, 2:], random_bits(everybody, 4, start=2))


def test_seed_and_every_part_of_the_path_count() -> None:
    paths = [(0,), (1,), (0, 1), (0, "1"), (0, "a", "b"), (0, "ab"), (0, "a", 1), (0, "b", "a")]
    seeds = {seed_for(*path) for path in paths}
    assert len(seeds) == len(paths)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert generator(5, "x").random() == generator(5, "x").random() != generator(5, "y").random()


def test_uniform_numbers() -> None:
    """The mean and variance of 100,000 numbers, within four standard deviations of 1/2 and 1/12."""
    draws = uniform(torch.tensor(7), torch.Size([100, 1000]), stream=0)
    assert float(draws.min()) >= 0.0 and float(draws.max()) < 1.0
    assert abs(float(draws.mean()) - 0.5) < 4 * (1 / 12 / 1e5) ** 0.5
    assert abs(float(draws.var()) - 1 / 12) < 4 * (1 / 180 / 1e5) ** 0.5
    other = uniform(torch.tensor(7), torch.Size([100, 1000]), stream=1)
    correlation = float(torch.corrcoef(torch.stack([draws.flatten(), other.flatten()]))[0, 1])
    assert abs(correlation) < 4 / 1e5**0.5


def test_keys_side_by_side_draw_what_each_draws_alone() -> None:
    keys = torch.tensor([3, -9, 2**62])
    together = vmap(lambda key: uniform(key, torch.Size([4]), stream=2))(keys)
    for lane, key in enumerate(keys):
        assert torch.equal(together[lane], uniform(key, torch.Size([4]), stream=2))


def test_code_of_others_draws_what_torchs_own_seed_gives() -> None:
    with generators_kept():
        seed_generators(2**63 + 5)
        found = torch.rand(5)
        torch.manual_seed(5)
        assert torch.equal(found, torch.rand(5))


def test_an_accelerator_is_seeded_with_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch, "manual_seed", seeds.append)
    with generators_kept():
        seed_generators(7)
    assert seeds == [7]


def test_a_build_for_an_accelerator_seeds_on_a_machine_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch 2.6 raises there."""

    def none() -> None:
        raise RuntimeError("Cannot access accelerator device when none is available.")

    with generators_kept():
        with monkeypatch.context() as without:
            without.setattr(torch.accelerator, "current_accelerator", none)
            seed_generators(7)
        found = torch.rand(3)
        torch.manual_seed(7)
        assert torch.equal(found, torch.rand(3))


def test_threads_that_seed_the_global_generators_take_turns() -> None:
    """A live page builds its model in a thread of its own while a run of the same program builds another."""
    entered, drawn = threading.Event(), threading.Event()

    def page() -> None:
        with seeded(0, "probe"):
            entered.set()
            drawn.wait()

    thread = threading.Thread(target=page)
    with generators_kept():
        seed_generators(3)
        expected = torch.rand(5)
        seed_generators(3)
        thread.start()
        entered.wait(0.1)  # the page may not begin before this model is made
        found = torch.rand(5)
    drawn.set()
    thread.join()
    assert entered.is_set()
    assert torch.equal(found, expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_process_that_is_forked_while_a_thread_draws_does_not_wait_for_it() -> None:
    inside, done = threading.Event(), threading.Event()

    def hold() -> None:
        with seeded(0, "probe"):
            inside.set()
            done.wait(0.3)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    child = os.fork()
    if child == 0:
        with seeded(1, "probe"):
            os._exit(0)
    done.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
