"""The model as a pure function."""

from __future__ import annotations

from torch import Tensor, nn

from fedtempo.client.network import Network


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.inside(x)


def test_a_model_with_code_of_the_users_own_is_not_plain() -> None:
    hooked = nn.Linear(2, 2)
    hooked.register_forward_hook(lambda module, inputs, output: output * 2)
    assert not Network(Own()).is_plain()
    assert not Network(nn.Sequential(nn.Linear(2, 2), Own())).is_plain()
    assert not Network(hooked).is_plain()
    assert Network(nn.Linear(2, 2)).is_plain()
