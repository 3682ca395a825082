"""The mean of words: what counts, how many parameters there are, and what is refused."""

from __future__ import annotations

import pytest
import torch

import fedtempo as ft
from fedtempo.models import word_average


def test_padding_does_not_count() -> None:
    model = word_average(words=20, width=4, hidden=3)
    short = model(torch.tensor([[5, 7]]))
    torch.testing.assert_close(model(torch.tensor([[5, 7, 0, 0]])), short)
    masked = model(torch.tensor([[5, 7, 9, 9]]), torch.tensor([[1, 1, 0, 0]]))
    torch.testing.assert_close(masked, short)
    assert torch.isfinite(model(torch.tensor([[0, 0]]))).all()


def test_the_order_of_words_does_not_count() -> None:
    model = word_average(words=20)
    torch.testing.assert_close(model(torch.tensor([[3, 4, 5]])), model(torch.tensor([[5, 3, 4]])))


def test_parameters_and_redrawing() -> None:
    model = word_average(words=20, outputs=2, width=4, hidden=3)
    assert sum(p.numel() for p in model.parameters()) == 20 * 4 + (4 * 3 + 3) + (3 * 2 + 2)
    before = model.body.embedding.weight.clone()
    model.reset_parameters()
    assert not torch.equal(before, model.body.embedding.weight)


def test_it_runs_on_both_backends_alike() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = [{"input_ids": torch.randint(1, 20, (6, 5), generator=generator), "y": torch.arange(6) % 2} for _ in "abc"]
    data = ft.data.FederatedData.from_clients(rows)
    settings = {"data": data, "algorithm": ft.algorithms.fedavg(lr=0.5, steps=3), "rounds": 2, "batch_size": 2}
    results = [
        ft.run(model=word_average(words=20), dtype=torch.float64, evaluation=None, backend=backend, **settings)
        for backend in ("serial", "vectorised")
    ]
    for name, tensor in results[0].params.items():
        torch.testing.assert_close(tensor, results[1].params[name], rtol=0, atol=1e-12)


@pytest.mark.parametrize("setting", [{"words": 0}, {"width": -1}, {"padding": 20}])
def test_wrong_sizes_are_refused(setting: dict[str, int]) -> None:
    with pytest.raises(ft.ConfigError, match=next(iter(setting))):
        word_average(**{"words": 20, **setting})
