"""A server that sends down a mean of the last round."""

from __future__ import annotations

import torch

from fedtempo.algorithms.parts.last_mean import last_mean, sending_last_mean
from fedtempo.client.objectives import Received
from fedtempo.client.transforms import sgd
from fedtempo.schedules import Now
from fedtempo.server.step import descend
from fedtempo.server.sums import Aggregate


def test_clients_get_the_mean_of_the_round_before() -> None:
    server = sending_last_mean(descend(sgd(1.0)), "kept", "last/")
    shared, delta = {"w": torch.tensor([1.0])}, {"w": torch.tensor([0.5])}
    first = server.init(shared)
    aggregate = Aggregate({"delta": delta}, weight=2.0, clients=2)
    moved, second = server.step(shared, first, aggregate, Now())
    assert moved["w"].item() == 1.5
    sent = [last_mean(Received(shared, server.extra(state)), "last/") for state in (first, second)]
    assert [mean["w"].item() for mean in sent] == [0.0, 0.5]


def test_another_group_of_the_upload_may_be_sent() -> None:
    server = sending_last_mean(descend(sgd(1.0)), "kept", "last/", group="direction")
    shared = {"w": torch.tensor([1.0])}
    means = {"delta": {"w": torch.tensor([0.5])}, "direction": {"w": torch.tensor([-4.0])}}
    _, state = server.step(shared, server.init(shared), Aggregate(means, weight=2.0, clients=2), Now())
    assert server.extra(state)["last/w"].item() == -4.0
