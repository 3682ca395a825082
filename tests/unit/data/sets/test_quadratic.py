"""The quadratic problem has the paper's minimiser."""

from fedtempo.data import load


def test_the_quadratic_has_the_papers_minimiser():
    z = load("quadratic", clients=200_000).columns["x"]
    assert z.min() >= 1
    assert z.max() <= 3
    assert abs(1 / z.mean() - 3 * (3**0.5 - 1) / (3 * 3**0.5 - 1)) < 1e-3
    assert load("quadratic", clients=7).split().sizes("train").tolist() == [1] * 7
