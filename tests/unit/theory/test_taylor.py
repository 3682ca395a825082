"""AvgGrad and AvgGradInner on real models, and the Taylor claim as a convergence order."""

import pytest
import torch

from fedtempo.errors import ConfigError
from fedtempo.params import norm, subtract
from fedtempo.theory import (
    actual_method_gradient,
    model_loss,
    predicted_method_gradient,
    taylor_terms,
)
from tests.slow import slow_but
from tests.unit.theory.small_models import batches, small_network


def quadratic(params, batch):
    """F(x) = a (x - c)^2 / 2 in one dimension; a batch is its a and c."""
    return (batch["a"] * (params["x"] - batch["c"]) ** 2 / 2).sum()


def one(a, c):
    return {"a": torch.tensor([a], dtype=torch.float64), "c": torch.tensor([c], dtype=torch.float64)}


AT_ZERO = {"x": torch.zeros(1, dtype=torch.float64)}


def test_terms_by_hand():
    """At x = 0, g = -a c and H = a. Client 1: (a, c) = (1, 1), (2, 3): g = -1, -6; client 2: (4, 1) twice: g = -4.

    AvgGrad = mean(-3.5, -4) = -3.75. AvgGradInner: client 1: (1 * -6 + 2 * -1) / 2 = -4; client 2: 4 * -4 = -16;
    their mean is -10.
    """
    terms = taylor_terms(quadratic, AT_ZERO, [[one(1.0, 1.0), one(2.0, 3.0)], [one(4.0, 1.0), one(4.0, 1.0)]])
    assert float(terms.avg_grad["x"]) == pytest.approx(-3.75)
    assert float(terms.avg_grad_inner["x"]) == pytest.approx(-10.0)


def test_actual_gradient_by_hand():
    """One client, both orders of (1, 1), (2, 3), b = (1, 1/2), lr = 1/10.

    First (1, 1): g = -1, x = 0.1, g = 2 (0.1 - 3) = -5.8: -1 - 2.9 = -3.9.
    First (2, 3): g = -6, x = 0.6, g = 0.6 - 1 = -0.4: -6 - 0.2 = -6.2.
    Quadratics have no third derivative, so Taylor is exact for two steps: 1.5 * -3.5 + 0.1 * 0.5 * 4 = -5.05.
    """
    clients = [[one(1.0, 1.0), one(2.0, 3.0)]]
    actual = actual_method_gradient(quadratic, AT_ZERO, clients, [1.0, 0.5], lr=0.1)
    predicted = predicted_method_gradient(taylor_terms(quadratic, AT_ZERO, clients), [1.0, 0.5], lr=0.1)
    assert float(actual["x"]) == pytest.approx((-3.9 - 6.2) / 2)
    assert float(predicted["x"]) == pytest.approx(-5.05)


FACTORS = [[1.0, 0.6, 0.36], [1.0, 1.0, 1.0, 1.0], [1.0, 0.5, 0.0]]


@pytest.mark.parametrize("factors", slow_but(FACTORS[:1], FACTORS, "other factors of the same formula"))
def test_taylor_error_shrinks_with_the_square_of_the_learning_rate(factors):
    clients = batches()
    loss, params = model_loss(small_network(), clients[0][0])
    terms = taylor_terms(loss, params, clients)
    errors = [
        float(
            norm(
                subtract(
                    actual_method_gradient(loss, params, clients, factors, lr),
                    predicted_method_gradient(terms, factors, lr),
                )
            )
        )
        for lr in (0.02, 0.01, 0.005)
    ]
    assert errors[0] / errors[1] == pytest.approx(4, abs=0.15)
    assert errors[1] / errors[2] == pytest.approx(4, abs=0.08)


def test_full_batch_training_pairs_a_batch_with_itself():
    clients = [[own[0]] for own in batches()]
    loss, params = model_loss(small_network(), clients[0][0])
    terms = taylor_terms(loss, params, clients)
    errors = [
        float(
            norm(
                subtract(
                    actual_method_gradient(loss, params, clients, [1.0] * 5, lr),
                    predicted_method_gradient(terms, [1.0] * 5, lr),
                )
            )
        )
        for lr in (0.01, 0.005)
    ]
    assert errors[0] / errors[1] == pytest.approx(4, abs=0.2)


def test_random_orders_are_seeded_and_close():
    clients = batches(clients=2)
    loss, params = model_loss(small_network(), clients[0][0])
    exact = actual_method_gradient(loss, params, clients, [1.0, 0.5], 0.1)
    drawn = [actual_method_gradient(loss, params, clients, [1.0, 0.5], 0.1, orders=60, seed=s) for s in (0, 0, 1)]
    assert all(torch.equal(drawn[0][name], drawn[1][name]) for name in exact)
    assert not all(torch.equal(drawn[0][name], drawn[2][name]) for name in exact)
    assert float(norm(subtract(drawn[0], exact))) < 0.2 * float(norm(exact))


def test_wrong_input_is_named():
    clients = [[one(1.0, 1.0), one(2.0, 3.0)]]
    with pytest.raises(ConfigError, match=r"factors must be at most as many as batches \(2\)"):
        actual_method_gradient(quadratic, AT_ZERO, clients, [1.0] * 3, 0.1)
    with pytest.raises(ConfigError, match="orders must be given, because 5040 orders are more than 720"):
        actual_method_gradient(quadratic, AT_ZERO, [[one(1.0, 1.0)] * 7], [1.0] * 7, 0.1)
    with pytest.raises(ConfigError, match="clients must be one or more, each with batches"):
        taylor_terms(quadratic, AT_ZERO, [])
