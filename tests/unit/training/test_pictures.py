"""Data and schedules, made ready to be drawn."""

from __future__ import annotations

import numpy as np

import fedtempo as ft
from fedtempo.training.pictures import MOST_CLIENTS, picture_of, plan_of
from fedtempo.training.prepare import prepare


def test_very_many_steps_are_not_all_worked_out(digits: ft.data.FederatedData) -> None:
    algorithm = ft.algorithms.fedavg(lr=0.1, steps=5000)
    plan = plan_of(prepare(model=ft.models.softmax_regression(64, 10), data=digits, algorithm=algorithm, rounds=50))
    assert len(plan.rounds) == 4
    assert (plan.rounds[0], plan.rounds[-1], plan.first[0][0]["K"]) == (0, 49, 5000)
    assert len(plan.inside[49][0]) == 200


def test_the_picture_counts_labels_and_marks_new_users(digits: ft.data.FederatedData) -> None:
    picture = picture_of(digits)
    assert picture.counts.sum() == picture.rows.sum() == 1797
    assert picture.clients[picture.new].tolist() == digits.held_out.tolist()
    many = ft.data.FederatedData.from_clients([(np.zeros((1, 2)), np.array([i % 3])) for i in range(1000)])
    shown = picture_of(many)
    assert (len(shown.clients), shown.total, shown.counts.shape) == (MOST_CLIENTS, 1000, (MOST_CLIENTS, 3))
    assert shown.counts.argmax(1).tolist() == (shown.clients % 3).tolist()
