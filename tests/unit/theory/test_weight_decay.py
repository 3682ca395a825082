"""FedNAR's Lemma 1 in its corrected form, against stepping through Algorithm 2."""

import pytest
import torch

from fedtempo.errors import ConfigError
from fedtempo.theory import global_displacement, local_displacement, round_shrinkage, weight_decay_for

CLIENTS, STEPS, SIZE = 3, 5, 4


def instance():
    random = torch.Generator().manual_seed(7)
    draw = lambda *shape: torch.rand(*shape, generator=random, dtype=torch.float64)  # noqa: E731
    start = draw(SIZE) - 0.5
    gradients = 2 * draw(CLIENTS, STEPS, SIZE) - 1
    return start, gradients, (0.3 * draw(CLIENTS, STEPS)).tolist(), (0.2 * draw(CLIENTS, STEPS)).tolist()


def walk(start, gradients, rates, decays):
    current = start
    for gradient, rate, decay in zip(gradients, rates, decays, strict=True):
        current = (1 - decay) * current - rate * gradient
    return current


def test_local_displacement_equals_stepping():
    start, gradients, rates, decays = instance()
    for i in range(CLIENTS):
        moved = start - walk(start, gradients[i], rates[i], decays[i])
        closed = local_displacement(gradients[i], rates[i], decays[i]).of(start)
        assert torch.allclose(closed, moved, rtol=0, atol=1e-12)


def test_global_update_equals_algorithm_2():
    start, gradients, rates, decays = instance()
    server = 0.7
    mean = torch.stack([start - walk(start, g, r, d) for g, r, d in zip(gradients, rates, decays, strict=True)]).mean(0)
    lemma = global_displacement(
        [local_displacement(g, r, d) for g, r, d in zip(gradients, rates, decays, strict=True)], server
    )
    assert torch.allclose((1 - lemma.shrinkage) * start - lemma.pull, start - server * mean, rtol=0, atol=1e-12)


def test_erratum_9_the_printed_product_is_wrong():
    """Printed: prod_{r=j}. It would also decay each gradient by its own step's (1 - u_j): off by 1e-2 here."""
    start, gradients, rates, decays = instance()
    kept = torch.tensor([1 - d for d in decays[0]], dtype=torch.float64)
    printed = (1 - kept.prod()) * start + sum(rates[0][j] * kept[j:].prod() * gradients[0][j] for j in range(STEPS))
    moved = start - walk(start, gradients[0], rates[0], decays[0])
    assert float((printed - moved).abs().max()) > 1e-2


def test_by_hand():
    """x_0 = 1, g = (1, 1), l = 0.1, u = 0.5: 1 -> 0.4 -> 0.1; displacement 0.9 = 0.75 * 1 + 0.05 + 0.1."""
    closed = local_displacement(torch.ones(2, 1, dtype=torch.float64), [0.1, 0.1], [0.5, 0.5])
    assert closed.shrinkage == 0.75
    assert float(closed.of(torch.ones(1, dtype=torch.float64))) == pytest.approx(0.9, abs=1e-12)


def test_round_shrinkage_and_its_inverse():
    assert round_shrinkage(0.1, lr=0.1, steps=2) == pytest.approx(1 - 0.99**2)
    assert round_shrinkage(weight_decay_for(0.03, 0.2, 17), 0.2, 17) == pytest.approx(0.03)


def test_wrong_input_is_named():
    with pytest.raises(ConfigError, match=r"rates must be one number per gradient \(2\)"):
        local_displacement(torch.ones(2, 1), [0.1], [0.0, 0.0])
    with pytest.raises(ConfigError, match=r"shrinkage must be a number in \[0, 1\). Got 1.0"):
        weight_decay_for(1.0, 0.1, 3)
