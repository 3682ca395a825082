"""Transforms: laws, and numbers worked by hand."""

from __future__ import annotations

import math
import pickle

import pytest
import torch

from fedtempo.client import transforms as t
from fedtempo.errors import ConfigError
from fedtempo.params import norm
from fedtempo.schedules import Now, per_round

G = {"w": torch.tensor([3.0, 4.0], dtype=torch.float64)}
P = {"w": torch.tensor([1.0, -2.0], dtype=torch.float64)}


def apply(transform: t.Transform, times: int = 1) -> tuple[torch.Tensor, object]:
    state = transform.init(P)
    for _ in range(times):
        update, state = transform.update(G, state, P, Now(round=1))
    return update["w"], state


def test_the_identity_is_known_after_a_journey_to_a_worker() -> None:
    """A worker that takes another for it would add in another order, and get other bits."""
    assert t.is_identity(pickle.loads(pickle.dumps(t.identity)))
    assert t.is_identity(t.chain(t.identity, pickle.loads(pickle.dumps(t.identity))))
    assert not t.is_identity(t.scale(1.0))


def test_clipping_leaves_exactly_the_limit() -> None:
    clip = t.clip_by_global_norm(1.0)
    clipped, state = clip.update(G, clip.init(P), P, Now())
    assert norm(clipped) == pytest.approx(1.0, abs=1e-12)
    assert clip.measurements(state) == {"clipped_steps": 1.0, "clipped_norm": 5.0}


def test_clipping_leaves_short_and_zero_gradients_alone() -> None:
    transform = t.clip_by_global_norm(5.0)
    assert torch.equal(apply(transform)[0], G["w"])
    zero = {"w": torch.zeros(2)}
    assert torch.equal(transform.update(zero, transform.init(P), P, Now())[0]["w"], zero["w"])


def test_torchs_clipping_has_an_offset() -> None:
    """s = A / (norm + 1e-6), as clip_grad_norm_ has it."""
    w = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    w.grad = G["w"].clone()
    torch.nn.utils.clip_grad_norm_([w], 1.0)
    torch.testing.assert_close(apply(t.clip_by_global_norm(1.0, eps=1e-6))[0], w.grad, rtol=1e-12, atol=0)


def test_the_order_of_decay_and_clipping() -> None:
    """Decay first: d = (3, 4) + (1, -2) = (4, 2), norm sqrt(20). Clip first: (3, 4) / 5 + (1, -2) = (1.6, -1.2)."""
    together = t.chain(t.add_weight_decay(1.0), t.clip_by_global_norm(1.0))
    torch.testing.assert_close(apply(together)[0], torch.tensor([4.0, 2.0], dtype=torch.float64) / math.sqrt(20))
    apart = t.chain(t.clip_by_global_norm(1.0), t.add_weight_decay(1.0))
    torch.testing.assert_close(apply(apart)[0], torch.tensor([1.6, -1.2], dtype=torch.float64))


def test_chain_is_flat_and_forgets_the_identity() -> None:
    assert t.chain() is t.identity
    assert t.chain(t.identity, t.identity) is t.identity
    assert [name for name, _ in t.chain(t.add_weight_decay(0.1), t.clip_by_global_norm(2.0)).schedules] == [
        "weight_decay",
        "max_norm",
    ]


def test_momentum_is_torchs() -> None:
    """u = g, then 0.5 g + g, then 0.25 g + 0.5 g + g."""
    assert torch.equal(apply(t.momentum(0.5), 3)[0], 1.75 * G["w"])
    torch.testing.assert_close(apply(t.sgd(per_round(0.1, 0.5), 0.5), 2)[0], 0.075 * G["w"])


def test_corrected_moments_are_torchs_adam() -> None:
    w = torch.nn.Parameter(P["w"].clone())
    adam = torch.optim.Adam([w], lr=0.1)
    state, ours = t.scale_by_adam(0.9, 0.999, 1e-8, "moments").init(P), P["w"].clone()
    for factor in (1.0, -0.5, 2.0):
        w.grad = factor * G["w"]
        adam.step()
        gradient = {"w": factor * G["w"]}
        update, state = t.scale_by_adam(0.9, 0.999, 1e-8, "moments").update(gradient, state, P, Now())
        ours = ours - 0.1 * update["w"]
    torch.testing.assert_close(ours, w.detach(), rtol=1e-12, atol=1e-12)


def test_reddis_adam_starts_at_eps_squared() -> None:
    """m = 0.1 g, v = 0.99 eps^2 + 0.01 g^2, no correction."""
    expected = 0.1 * G["w"] / (torch.sqrt(0.99e-6 + 0.01 * G["w"] ** 2) + 1e-3)
    torch.testing.assert_close(apply(t.scale_by_adam())[0], expected, rtol=1e-12, atol=0)


def test_yogi_and_adagrad() -> None:
    """Yogi: v = eps^2 + 0.01 g^2 (as v < g^2). Adagrad: v = eps^2 + 2 g^2 after two steps."""
    expected = 0.1 * G["w"] / (torch.sqrt(1e-6 + 0.01 * G["w"] ** 2) + 1e-3)
    torch.testing.assert_close(apply(t.scale_by_yogi())[0], expected, rtol=1e-12, atol=0)
    expected = G["w"] / (torch.sqrt(1e-6 + 2 * G["w"] ** 2) + 1e-3)
    torch.testing.assert_close(apply(t.scale_by_adagrad(), 2)[0], expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    "build", [lambda: t.momentum(1.0), lambda: t.scale_by_adam(b1=1.0), lambda: t.scale_by_yogi(b2=-1)]
)
def test_wrong_settings_are_refused(build) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError):
        build()
