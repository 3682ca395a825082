"""A device whose memory runs out, that is lost, forked or without numbers of 64 bits: one clear line each."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

import pytest
import torch

import fedtempo as ft
from fedtempo.support.accelerator import device_of
from fedtempo.training.pool import Pool
from tests import twin, zoo
from tests.twin import on_twin


def run(backend: str, **settings: Any) -> ft.Result:
    given = {"algorithm": zoo.ALGORITHMS["fedavg"], "rounds": 2, "evaluation": None, "seed": 1, **settings}
    data, model = zoo.data("mlp"), zoo.model("mlp")
    return ft.run(model=model, data=data, backend=backend, batch_size=4, device="twin", progress=False, **given)


def refusal(backend: str, **settings: Any) -> str:
    try:
        run(backend, **settings)
    except ft.FedTempoError as error:
        return str(error)
    return "nothing"


def halved() -> tuple[int, bool]:
    """The most clients side by side in the end, and whether the bits are those of a run with enough memory."""
    plenty = run("vectorised")
    allocations = twin.TWIN.allocations
    run("vectorised", rounds=1)
    middle = (twin.TWIN.allocations - allocations) * 9 // 10  # past the checks, in the round
    with twin.failing(middle):
        tight = run("vectorised")
    return tight.experiment.federation.notes.most_clients, tight.digest() == plenty.digest()


def test_a_block_that_does_not_fit_is_halved_and_the_bits_stay() -> None:
    assert on_twin(halved) == (3, True)


def too_large_alone(backend: str) -> str:
    allocations = twin.TWIN.allocations
    run(backend, rounds=1, block=1)
    middle = (twin.TWIN.allocations - allocations) * 9 // 10
    with twin.failing(middle, times=10**9):
        return refusal(backend, rounds=1, block=1)


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
def test_memory_that_is_too_small_for_one_client_is_named(backend: str) -> None:
    said = on_twin(too_large_alone, backend)
    # In the client's round the client is named; later, where uploads are added, the device.
    alone = "round 0: the device's memory ran out: use a smaller batch_size" in said and "client " in said
    assert alone or said.startswith("the memory of device 'twin' ran out: twin out of memory")
    assert "\n" not in said


def lost_in_the_second_round() -> str:
    rounds = ft.train(
        model=zoo.model("mlp"),
        data=zoo.data("mlp"),
        algorithm=zoo.ALGORITHMS["fedavg"],
        rounds=3,
        device="twin",
        progress=False,
    )
    next(rounds)
    try:
        with twin.with_settings(lost=True):
            next(rounds)
    except ft.TrainingError as error:
        return str(error)
    return "nothing"


def test_a_device_that_is_lost_ends_the_run_in_one_line() -> None:
    said = on_twin(lost_in_the_second_round)
    assert said.startswith("run stopped: device 'twin' failed (twin error: the device is lost)")
    assert "\n" not in said


def without_float64() -> str:
    with twin.with_settings(has_float64=False):
        return refusal("serial")


def test_a_device_without_numbers_of_64_bits_is_refused() -> None:
    said = on_twin(without_float64)
    assert said.startswith("device must be one with numbers of 64 bits (float64)") and "\n" not in said


def used_after_a_fork() -> tuple[str, str]:
    torch.zeros(1, device="twin")
    try:
        Pool(lambda job, ask: None, 2, "fork")
    except ft.ConfigError as error:
        pool = str(error)
    here, there = multiprocessing.Pipe()
    child = os.fork()
    if not child:
        there.send(refusal("serial"))
        os._exit(0)
    os.waitpid(child, 0)
    return here.recv(), pool


def test_a_fork_of_a_process_that_has_used_the_device_is_told_how_to_start() -> None:
    said, pool = on_twin(used_after_a_fork)
    assert said.startswith("device must be used for the first time after a fork: start such a process by 'spawn'")
    assert pool.startswith("workers must be 1 once this process has used an accelerator")


def automatic() -> tuple[str, str, str]:
    result = run("serial", rounds=1)
    chosen = ft.run(
        model=zoo.model("mlp"),
        data=zoo.data("mlp"),
        algorithm=zoo.ALGORITHMS["fedavg"],
        rounds=1,
        device="auto",
        progress=False,
    )
    (note,) = [note for note in chosen.notes if note.startswith("device")]
    place = next(iter(result.last.shared.values())).device.type
    return device_of("auto"), place, note


def test_auto_is_the_accelerator_and_says_so() -> None:
    assert on_twin(automatic) == ("twin", "twin", "device: auto is 'twin' here")


def test_without_an_accelerator_auto_is_the_processor() -> None:
    if torch.accelerator.is_available():
        pytest.skip("this machine has an accelerator")
    assert device_of("auto") == device_of(torch.device("cpu:0")) == "cpu"
