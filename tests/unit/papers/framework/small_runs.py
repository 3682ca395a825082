"""A reproduction of seconds, and a run on digits with every measure."""

from __future__ import annotations

import fedtempo as ft
from fedtempo.papers import REPRODUCTIONS
from fedtempo.papers.framework.definitions import Data, Measured, Model, Training
from fedtempo.papers.framework.measures import costs, learning, to_target, train_loss, users

QUADRATIC = REPRODUCTIONS["decaying-k-quadratic"]


def digits_runs(scale: object, seed: int) -> list[Training]:
    data = Data("digits", ft.data.dirichlet(10, 0.5), seed, {"new_clients": 2, "min_samples": 3}, rows=400)
    measures = (users, costs, train_loss, learning, to_target_of_a_fifth, to_target_of_two)
    settings = {"rounds": 6, "cohort": 4, "seed": seed, "evaluation": ft.Evaluation(every=2)}
    algorithm = ft.algorithms.fedavg(lr=0.1, steps=3)
    return [
        Training(
            "FedAvg", data, Model("mlp", {"inputs": 64, "hidden": [8], "outputs": 10}), algorithm, settings, measures
        )
    ]


def to_target_of_a_fifth(result: ft.Result) -> Measured:
    return to_target(result, 0.01)


def to_target_of_two(result: ft.Result) -> Measured:
    return Measured({"never": to_target(result, 2.0).values["rounds_to_target"]})
