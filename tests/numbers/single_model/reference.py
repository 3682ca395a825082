"""Plain numpy references for the single-model algorithms, written from the papers and from nothing in the library.

x is the shared vector, y a client's copy, D_i = y_i - x. Rates are numbers or functions of (round t, step k).
"""

from collections.abc import Callable, Sequence

import numpy as np

from tests.numbers.single_model.problem import Problem

Vector = np.ndarray
Client = Callable[[int, int, Vector], Vector]
Server = Callable[[int, Vector, list[Vector], list[float]], Vector]


def at(rate, *place):
    """A rate's value: itself, or the function's at this place."""
    return rate(*place) if callable(rate) else rate


def federate(
    problem: Problem, start, cohorts, client: Client, server: Server | None = None, weighting="uniform"
) -> Vector:
    """The round: everybody in S_t sends D_i, the server sees them with w_i = 1/|S| or n_i / sum_S n_j."""
    x, models, server = np.array(start, dtype=float), [], server or averaging()
    for t, cohort in enumerate(cohorts):
        sizes = [problem.sizes[i] if weighting == "samples" else 1 for i in cohort]
        weights = [n / sum(sizes) for n in sizes]
        x = server(t, x, [client(t, i, x) for i in cohort], weights)
        models.append(x)
    return np.array(models)


# ---- clients


def plain(t: int, g: Vector, y: Vector) -> Vector:
    return g


def displacement(path: list[Vector], rates: list[float]) -> Vector:
    return path[-1] - path[0]


def last_update(path: list[Vector], rates: list[float]) -> Vector:
    """FOMAML with the inner rate: y_K - y_{K-1} = -l g^(K-1)."""
    return path[-1] - path[-2]


def last_gradient(path: list[Vector], rates: list[float]) -> Vector:
    """FOMAML with its own outer rate: -g^(K-1)."""
    return (path[-1] - path[-2]) / rates[-1]


def descend(
    start: Vector, gradient: Callable[[Vector], Vector], rates: Sequence[float], shape=plain, t=0
) -> list[Vector]:
    """y_{k+1} = y_k - l_k shape(g(y_k), y_k); the whole path y_0 .. y_K."""
    path = [start]
    for rate in rates:
        y = path[-1]
        path.append(y - rate * shape(t, gradient(y), y))
    return path


def sgd(
    problem: Problem, lr, steps, *, mu=0.0, shape=plain, control: "Control | None" = None, sends=displacement
) -> Client:
    """K_t steps along grad f_i(y) + mu (y - x) + (c - c_i), each put through `shape` (clipping, weight decay)."""

    def client(t: int, i: int, x: Vector) -> Vector:
        drift = control.c - control.of[i] if control else 0.0
        rates = [at(lr, t, k) for k in range(at(steps, t))]
        path = descend(x, lambda y: problem.gradient(i, y) + at(mu, t) * (y - x) + drift, rates, shape, t)
        if control:
            control.finish(i, path, rates)
        return sends(path, rates)

    return client


class NormalizedDecay:
    """FedNAR: d = g + wd y, s = min(1, A / (||d|| + eps)), step s d. Baseline: s from ||g||, step s g + wd y."""

    def __init__(self, wd, limit, *, baseline=False, eps=0.0):
        self.wd, self.limit, self.baseline, self.eps = wd, limit, baseline, eps
        self.norms: dict[int, list[float]] = {}
        self.free: dict[int, int] = {}

    def __call__(self, t: int, g: Vector, y: Vector) -> Vector:
        decay, limit = at(self.wd, t) * y, at(self.limit, t)
        d = g if self.baseline else g + decay
        norm = float(np.sqrt((d * d).sum())) + self.eps
        clipped = norm > limit
        self.norms.setdefault(t, []).extend([norm] if clipped else [])
        self.free[t] = self.free.get(t, 0) + (not clipped)
        d = d * (limit / norm) if clipped else d
        return d + decay if self.baseline else d

    def check(self, result) -> None:
        """The rounds report how many steps were clipped and the mean norm of those."""
        for report in result.history:
            norms = self.norms[report.round]
            assert report.measurements["clipped_steps"] == len(norms)
            assert abs(report.measurements["clipped_norm"] - (np.mean(norms) if norms else 0.0)) < 1e-12


class Control:
    """SCAFFOLD's c and c_i, zero at first. Option II: c_i+ = c_i - c + (x - y_K) / (l_0 + .. + l_{K-1})."""

    def __init__(self, problem: Problem, size: int, option: str = "II"):
        self.problem, self.option = problem, option
        self.c, self.of = np.zeros(size), [np.zeros(size) for _ in problem.sizes]
        self._change = np.zeros(size)

    def finish(self, i: int, path: list[Vector], rates: list[float]) -> None:
        old = self.of[i]
        second = old - self.c + (path[0] - path[-1]) / sum(rates)
        self.of[i] = second if self.option == "II" else self.problem.gradient(i, path[0])
        self._change = self._change + self.of[i] - old

    def closing(self, server: Server) -> Server:
        """The server's step, then c <- c + (1/N) sum_S (c_i+ - c_i): N is everybody."""

        def step(t, x, deltas, weights):
            x = server(t, x, deltas, weights)
            self.c, self._change = self.c + self._change / len(self.of), np.zeros_like(self.c)
            return x

        return step


# ---- servers


def mean(deltas: list[Vector], weights: list[float]) -> Vector:
    return sum(w * d for w, d in zip(weights, deltas, strict=True))


def averaging(eta=1.0) -> Server:
    """x + eta_t D."""
    return lambda t, x, deltas, weights: x + at(eta, t) * mean(deltas, weights)


def momentum(decay: float, eta=1.0, inner: Callable[[Vector], Vector] = lambda u: u) -> Server:
    """u = decay u + D; x + eta u (`inner` may look at u first)."""
    u = 0.0

    def step(t, x, deltas, weights):
        nonlocal u
        u = decay * u + mean(deltas, weights)
        return x + at(eta, t) * inner(u)

    return step


class Adaptive:
    """m = b1 m + (1 - b1) D; v by `grow`; direction rho m / (sqrt(v) + eps). Reddi: v_{-1} = eps^2, rho = 1."""

    def __init__(self, grow, b1, b2, eps, first=None, corrected=False):
        self.grow, self.b1, self.b2, self.eps, self.corrected = grow, b1, b2, eps, corrected
        self.m, self.v, self.t = 0.0, eps**2 if first is None else first, 0

    def direction(self, d: Vector) -> Vector:
        self.t += 1
        self.m = self.b1 * self.m + (1 - self.b1) * d
        self.v = self.grow(self.v, d**2, self.b2)
        rho = np.sqrt(1 - self.b2**self.t) / (1 - self.b1**self.t) if self.corrected else 1.0
        return rho * self.m / (np.sqrt(self.v) + self.eps)

    def server(self, eta) -> Server:
        return lambda t, x, deltas, weights: x + at(eta, t) * self.direction(mean(deltas, weights))


GROWTH = {
    "adam": lambda v, square, b2: b2 * v + (1 - b2) * square,
    "yogi": lambda v, square, b2: v - (1 - b2) * square * np.sign(v - square),
    "adagrad": lambda v, square, b2: v + square,
}


def fednar_adam(eta, eps) -> Server:
    """The FedNAR code's Adam: m = .9 m + .1 D, v = .99 v + .01 m^2, x + eta (m / .1) / sqrt(v / .01 + eps_t)."""
    m, v = 0.0, 0.0

    def step(t, x, deltas, weights):
        nonlocal m, v
        m = 0.9 * m + 0.1 * mean(deltas, weights)
        v = 0.99 * v + 0.01 * m**2
        return x + eta * (m / 0.1) / np.sqrt(v / 0.01 + at(eps, t))

    return step


class Extrapolation:
    """FedExP: eta = max(1, sum w_i ||D_i||^2 / (2 (||D||^2 + eps))). `rates` keeps the etas."""

    def __init__(self, eps=0.0, per_client=False):
        self.eps, self.per_client, self.rates = eps, per_client, []

    def __call__(self, t, x, deltas, weights):
        d, eps = mean(deltas, weights), at(self.eps, t) * (len(deltas) if self.per_client else 1)
        spread = sum(w * float(di @ di) for w, di in zip(weights, deltas, strict=True))
        self.rates.append(max(1.0, spread / (2 * (float(d @ d) + eps))))
        return x + self.rates[-1] * d
