"""An algorithm of one's own, tuned by an experiment file: FedAvg whose server shrinks the model towards zero.

own_algorithm.toml names the function below and the values to try, so the command line knows it as well:
fedtempo tune examples/own_algorithm.toml --out search. Validation picks; test scores of the winner are looked at once.
Needs the extra `tune`.
Run: python examples/own_algorithm_tuned.py     FEDTEMPO_QUICK=1 makes it take seconds.
"""

import os
from pathlib import Path
from tempfile import mkdtemp

import fedtempo as ft
from fedtempo.config import read, settings_of
from fedtempo.schedules import Rate, checked_rate
from fedtempo.tuning import plan_search, search, space_of

QUICK = "FEDTEMPO_QUICK" in os.environ


@ft.named
def shrinking(lr: Rate, steps: Rate, shrink: float = 0.01) -> ft.Algorithm:
    """Clients take plain steps. The server adds the mean displacement and then shrinks the model."""
    plain = ft.descend(ft.transforms.sgd(1.0))

    def step(shared, state, aggregate, now):
        moved, state = plain.step(shared, state, aggregate, now)
        return {name: (1 - shrink) * tensor for name, tensor in moved.items()}, state

    phase = ft.Phase(ft.length(steps), checked_rate(lr, "lr"))
    return ft.Algorithm((phase,), server=ft.Server(plain.init, step))


def main() -> None:
    """Check the algorithm, try the values of the file, run the winner."""
    ft.check_algorithm(shrinking(lr=0.1, steps=3))  # the battery that built-in algorithms pass
    path = Path(__file__).parent / "own_algorithm.toml"
    folder = Path(mkdtemp()) / "search"
    search(plan_search(space_of(path, settings={"rounds": 2} if QUICK else {})), folder)
    print((folder / "trials.csv").read_text())
    result = ft.run(**settings_of(read(folder / "best.toml")))
    print("the winner, on test rows that played no part in the choice:")
    print(result.table())


if __name__ == "__main__":
    main()
