"""FedEM against hand-worked numbers and a numpy reference, and its laws."""

from math import log

import numpy as np
import pytest
import torch
from torch import nn

import fedtempo as ft
from tests.numbers.personalised import reference_models as models
from tests.numbers.personalised.setting import (
    CLIENTS,
    COMPONENTS,
    NEWCOMER,
    PARTIAL,
    assert_close,
    assert_personal,
    both_backends,
    both_participations,
    run,
    tensors,
)


def uniform(count: int) -> dict[int, np.ndarray]:
    return dict.fromkeys(range(4), np.full(count, 1 / count))


@both_backends
def test_by_hand(backend: str) -> None:
    """Two classes, x = 1, the model is its two logits: (0, 0) and (log 3, 0), so exp(-loss) is 1/2, 1/2 and 3/4, 1/4.

    E-step, pi = (1/2, 1/2). y=0: q = (1/4, 3/8) / (5/8) = (2/5, 3/5). y=1: q = (1/4, 1/8) / (3/8) = (2/3, 1/3).
    A has y=0: pi = (2/5, 3/5). B has y=0, 1: pi = (8/15, 7/15).
    M-step, K=1, l=1, on the first logit (the second moves the other way): minus mean q (p_0 - [y=0]).
    A: 2/5 * 1/2 = 1/5 and 3/5 * 1/4 = 3/20. B: -1/2 (-1/5 + 1/3) = -1/15 and -1/2 (-3/20 + 1/4) = -1/20.
    Weights 1/3, 2/3: 1/15 - 2/45 = 1/45 and 1/20 - 1/30 = 1/60.
    """
    clients = [(np.ones((1, 1)), np.array([0])), (np.ones((2, 1)), np.array([0, 1]))]
    start = {"weight": np.array([[[0.0], [0.0]], [[log(3)], [0.0]]])}
    algorithm = ft.algorithms.fedem(lr=1.0, steps=1, components=2)
    model = nn.Linear(1, 2, bias=False)
    result = run(algorithm, [[0, 1]], backend=backend, clients=clients, start=start, model=model)
    expected = {"weight": np.array([[[1 / 45], [-1 / 45]], [[log(3) + 1 / 60], [-1 / 60]]])}
    assert_close(result.params, expected)
    assert_personal(result, {0: {"pi": np.array([2 / 5, 3 / 5])}, 1: {"pi": np.array([8 / 15, 7 / 15])}})


@both_backends
@both_participations
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("over", ["sampled", "all"])
def test_against_reference(backend: str, cohorts: list[list[int]], count: int, over: str) -> None:
    """q_m(s) ~ pi_m exp(-loss_m(s)) with the received components, pi_m = mean q_m, K steps on mean_s q_m(s) loss_m(s).

    Components are averaged by samples over the cohort; over="all" lets absent clients stand for the unchanged model.
    """
    algorithm = ft.algorithms.fedem(lr=0.4, steps=3, components=count, over=over)
    result = run(algorithm, cohorts, backend=backend, start=COMPONENTS[count])
    x, mixtures = models.fedem(
        CLIENTS, COMPONENTS[count], uniform(count), cohorts, lr=0.4, steps=3, over_all=over == "all"
    )
    assert_close(result.params, x)
    assert_personal(result, {i: {"pi": pi} for i, pi in mixtures.items()})
    for client in range(4):
        pi = result.client_state(client)["pi"]
        assert bool((pi >= 0).all())
        assert float(pi.sum()) == pytest.approx(1.0, abs=1e-12)


@both_backends
def test_newcomer_makes_one_e_step(backend: str) -> None:
    """pi = mean_s q(s) from pi = 1/M with frozen components; predictions are sum_m pi_m softmax(h_m)."""
    result = run(ft.algorithms.fedem(lr=0.4, steps=3), PARTIAL, backend=backend, start=COMPONENTS[3])
    x, _ = models.fedem(CLIENTS, COMPONENTS[3], uniform(3), PARTIAL, lr=0.4, steps=3)
    pi = models.responsibilities(x, np.full(3, 1 / 3), NEWCOMER).mean(axis=0)
    model = result.personalize(NEWCOMER)
    assert_close(model.shared, x)
    assert_close(model.personal, {"pi": pi})
    answers = torch.softmax(model(tensors({"x": NEWCOMER[0]})["x"]), dim=-1)
    assert_close({"y": answers}, {"y": models.mixture_probabilities(x, pi, NEWCOMER[0])})


@both_backends
@pytest.mark.parametrize("batch_size", [None, 2])
def test_one_component_is_fedavg(backend: str, batch_size: int | None) -> None:
    """q = pi = 1, so the M-step is FedAvg's, on the same batches."""
    mixture = run(
        ft.algorithms.fedem(lr=0.4, steps=3, components=1),
        PARTIAL,
        backend=backend,
        batch_size=batch_size,
        start=COMPONENTS[1],
    )
    average = run(
        ft.algorithms.fedavg(lr=0.4, steps=3, weighting="samples"),
        PARTIAL,
        backend=backend,
        batch_size=batch_size,
        start={n: a[0] for n, a in COMPONENTS[1].items()},
    )
    assert_close({n: t[0] for n, t in mixture.params.items()}, {n: t.numpy() for n, t in average.params.items()})
    assert all(torch.equal(mixture.client_state(i)["pi"], torch.ones(1, dtype=torch.float64)) for i in range(4))


class Constants(nn.Module):
    """Predicts the same number, or numbers, for every row."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.w

    def reset_parameters(self) -> None:
        nn.init.normal_(self.w)


@both_backends
@pytest.mark.parametrize(
    ("targets", "outputs", "expected"),
    [
        # Squared errors 0 and 4: the second component has no weight to speak of after the E-step, pi = 1 / (1 + e^-4).
        (np.zeros((1, 1)), [[0.0], [2.0]], 2 * (1 - 1 / (1 + np.exp(-4)))),
        # Probabilities 1/2 and 3/4 of yes: q = (2/5, 3/5), p = 1/5 + 9/20 = 13/20.
        (np.ones(1, dtype=bool), [[0.0], [log(3)]], log(13 / 7)),
        (np.ones((1, 1), dtype=bool), [[0.0], [log(3)]], log(13 / 7)),
    ],
)
def test_the_mixture_of_numbers_and_of_labels_by_hand(
    backend: str, targets: np.ndarray, outputs: list[list[float]], expected: float
) -> None:
    clients = [(np.ones((1, 1)), targets)] * 2
    algorithm = ft.algorithms.fedem(lr=0.0, steps=1, components=2)
    start = {"w": np.array(outputs)}
    kind = {"loss": "regression"} if targets.dtype != bool else {}
    result = run(algorithm, [[0, 1]], backend=backend, clients=clients, start=start, model=Constants(1), **kind)
    model = result.personalize(result.experiment.federation.problem.data.client(0))
    assert float(model(torch.ones(1, 1, dtype=torch.float64))) == pytest.approx(expected, abs=1e-12)


def test_components_that_cannot_be_drawn_are_refused() -> None:
    class Undrawn(Constants):
        reset_parameters = None  # type: ignore[assignment]

    data = ft.data.FederatedData.from_clients([(np.ones((2, 1)), np.ones((2, 1)) / 3)] * 2)
    algorithm = ft.algorithms.fedem(lr=0.1, steps=1)
    with pytest.raises(ft.errors.ModelError, match="components of a mixture must start different"):
        ft.run(model=Undrawn(1), data=data, algorithm=algorithm, rounds=1)
    drawn = ft.run(model=nn.Linear(1, 1), data=data, algorithm=algorithm, rounds=1, evaluation=None)
    assert len(drawn.params["weight"].unique()) == 3
