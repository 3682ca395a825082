"""The character GRU is torch's GRU."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedtempo import models
from fedtempo.models.character_gru import RecurrentBody


def test_the_gru_is_torchs_gru():
    body = RecurrentBody(characters=9, embedding=4, hidden=6, layers=2, last_only=False).double()
    reference = nn.GRU(4, 6, num_layers=2, batch_first=True).double()
    for number, layer in enumerate(body.layers):
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(reference, f"{name}_l{number}").data = getattr(layer, name).data
    x = torch.randint(9, (3, 5))
    torch.testing.assert_close(body(x), reference(body.embedding(x))[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("make", [models.character_gru, models.character_transformer])
def test_last_only_is_the_last_of_all_predictions(make):
    every, last = make(layers=2).eval(), make(layers=2, last_only=True).eval()
    last.load_state_dict(every.state_dict())
    x = torch.randint(77, (3, 10))
    torch.testing.assert_close(last(x), every(x)[:, -1])
