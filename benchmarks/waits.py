"""How often a round waits for a device and copies to it, for every algorithm: `python -m benchmarks.waits`.

Counted on the device of `tests/twin.py`, not timed: a round of eight clients, one epoch or a few steps each, with one
evaluation of all users. The last columns say how a second round differs from a first: what a run does once is left out.
"""

from __future__ import annotations

import warnings

import torch
from tests import twin, zoo

import fedtempo as ft


def counted(name: str, backend: str, rounds: int) -> twin.Watch:
    """What happens in a run of so many rounds."""
    with twin.watched() as watch:
        ft.run(
            model=zoo.model("mlp"),
            data=zoo.data("mlp"),
            algorithm=zoo.ALGORITHMS[name],
            rounds=rounds,
            batch_size=4,
            backend=backend,
            device=twin.NAME,
            evaluation=ft.Evaluation(every=1),
            progress=False,
        )
    return watch


def of_a_round(name: str, backend: str) -> tuple[int, int]:
    """Waits and copies of the second round."""
    one, two = (counted(name, backend, rounds) for rounds in (1, 2))
    return two.waits - one.waits, two.copies - one.copies


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    twin.install()
    print("| algorithm | waits, serial | copies | waits, vectorised | copies |\n|---|---|---|---|---|")
    for name in zoo.ALGORITHMS:
        numbers = [str(number) for backend in ("serial", "vectorised") for number in of_a_round(name, backend)]
        print(f"| {name} | {' | '.join(numbers)} |", flush=True)


if __name__ == "__main__":
    main()
