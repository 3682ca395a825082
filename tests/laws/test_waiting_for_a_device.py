"""How often a round waits for a device: not for a local step, nor side by side for a client."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import fedtempo as ft
from fedtempo import algorithms as a
from tests import zoo
from tests.slow import slow_but
from tests.twin import on_twin, watched

BY_STEPS: dict[str, Callable[[int], ft.Algorithm]] = {
    "fedavg": lambda steps: a.fedavg(lr=0.1, steps=steps),
    "fedavg by AdamW": lambda steps: a.fedavg(lr=0.01, steps=steps, optimizer=ft.optimizers.adamw()),
    "scaffold by signs": lambda steps: a.scaffold(lr=0.1, steps=steps, compress=ft.compress.sign()),
    "fednar": lambda steps: a.fednar(a.fedavg(lr=0.1, steps=steps), weight_decay=0.1, max_norm=0.5),
    "diloco": lambda steps: a.diloco(lr=0.01, steps=steps, max_norm=1.0),
    "delta-sgd": lambda steps: a.delta_sgd(a.fedavg(lr=0.1, steps=steps)),
    "fedsps": lambda steps: a.fedsps(a.fedprox(lr=0.1, steps=steps, mu=0.1)),
    "pflego": lambda steps: a.pflego(head_lr=0.1, server_lr=0.2, steps=steps),
    "fedem": lambda steps: a.fedem(lr=0.1, steps=steps, components=2),
    "ditto": lambda steps: a.ditto(lr=0.1, steps=steps),
    "moon": lambda steps: a.moon(lr=0.1, steps=steps),
    "apfl": lambda steps: a.apfl(lr=0.1, steps=steps, adaptive=True),
    "fedadamw": lambda steps: a.fedadamw(lr=0.01, steps=steps),
    "fedmuon": lambda steps: a.fedmuon(lr=0.01, steps=steps),
}
OFTEN = ["fedavg", "scaffold by signs", "fednar"]
WHY = "one of each kind runs every time: plain, compressed, and with norms"


def waits(name: str, steps: int, cohort: int, backend: str) -> int:
    """How often a second round waits, with its evaluation."""

    def waited(rounds: int) -> int:
        with watched() as watch:
            ft.run(
                model=zoo.model("mlp"),
                data=zoo.data("mlp"),
                algorithm=BY_STEPS[name](steps),
                rounds=rounds,
                cohort=cohort,
                batch_size=4,
                backend=backend,
                device="twin",
                evaluation=ft.Evaluation(every=1),
                progress=False,
            )
        return watch.waits

    return waited(2) - waited(1)


def by_steps(name: str) -> tuple[int, int]:
    return waits(name, 2, 4, "serial"), waits(name, 7, 4, "serial")


def by_clients(name: str) -> tuple[int, int]:
    return waits(name, 3, 2, "vectorised"), waits(name, 3, 6, "vectorised")


@pytest.mark.parametrize("name", slow_but(OFTEN, BY_STEPS, WHY))
def test_waits_do_not_grow_with_local_steps(name: str) -> None:
    few, many = on_twin(by_steps, name)
    assert 0 < many == few


@pytest.mark.parametrize("name", slow_but(OFTEN, BY_STEPS, WHY))
def test_side_by_side_waits_do_not_grow_with_clients(name: str) -> None:
    few, many = on_twin(by_clients, name)
    assert 0 < many == few


def waits_of_a_phase_that_stops() -> tuple[int, int]:
    def stops(steps: int) -> ft.Algorithm:
        return a.stop_early(a.fedavg(lr=0.1, steps=steps), gradient=0.0)

    BY_STEPS["stop_early"] = stops
    return waits("stop_early", 4, 1, "serial"), waits("stop_early", 16, 1, "serial")


def test_a_phase_whose_length_depends_on_numbers_is_asked_ever_more_rarely() -> None:
    few, many = on_twin(waits_of_a_phase_that_stops)
    assert many == few + 2, "before steps 4 and 8 too"
