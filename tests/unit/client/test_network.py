"""The model as a pure function."""

from __future__ import annotations

from torch import nn

from fedtempo.client.network import Network
from tests.unit.client.test_gradients import Own


def test_code_of_the_users_own_is_known_from_ours() -> None:
    hooked = nn.Linear(2, 2)
    hooked.register_forward_hook(lambda module, inputs, output: output * 2)
    assert not Network(Own()).is_known()
    assert not Network(nn.Sequential(nn.Linear(2, 2), Own())).is_known()
    assert Network(nn.Linear(2, 2)).is_known() and not Network(nn.Linear(2, 2)).hooked()
    assert Network(hooked).hooked()
