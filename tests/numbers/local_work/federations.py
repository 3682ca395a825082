"""Numpy references for methods in which clients and server work together, each a whole run."""

import numpy as np

from tests.numbers.local_work.clients import unit
from tests.numbers.single_model.reference import Vector, at


def shares(p, cohort, weighting):
    sizes = np.array([p.sizes[i] if weighting == "samples" else 1 for i in cohort], dtype=float)
    return sizes / sizes.sum()


def hyper_global(client, p, start, cohorts, s, bounds=(1 / 3, 3.0), look_back=0.0) -> Vector:
    """alpha_t = clip(alpha_{t-1} + s <D_t, D_{t-1}>); with look_back the code's a, L and x += D + a (D + .9 L)."""
    x, models, alpha, last = start, [], 1.0, None
    for t, cohort in enumerate(cohorts):
        d = np.mean([client(t, i, x) for i in cohort], axis=0)
        if last is None:
            x, last = x + d, d
        else:
            alpha = np.clip(alpha + s * (d @ last), *bounds)
            if look_back:
                x, last = x + d + (alpha - 1) * (d + look_back * last), d + look_back * last
            else:
                x, last = x + alpha * d, d
        models.append(x)
    return np.array(models)


def hyper_server(p, start, cohorts, rate, steps, s, relative=False) -> Vector:
    x, models, lr, total, last = start, [], rate, 0.0, None
    for cohort in cohorts:
        moves = []
        for i in cohort:
            y = x
            for _ in range(steps):
                y = y - lr * p.gradient(i, y)
            moves.append(y - x)
        d = np.mean(moves, axis=0)
        if last is not None:
            total += s * (d @ last)
            lr = np.clip(rate * (1 + total) if relative else lr + s * (d @ last), rate / 10, 10 * rate)
        x, last = x + d, d
        models.append(x)
    return np.array(models)


def shortened(v, most):
    """torch's clipping by one norm; None is none."""
    return v if most is None else v * min(1.0, most / (np.linalg.norm(v) + 1e-6))


def nova(
    p,
    start,
    cohorts,
    rate,
    steps,
    rho=0.0,
    mu=0.0,
    tau="norm",
    weighting="samples",
    outer=0.0,
    inside=None,
    compat=False,
):
    """The coefficients a_j of every gradient are followed one by one: D_i = -l sum_j a_j g_j, A_i = sum_j a_j."""
    x, models, u = start, [], 0.0
    for t, cohort in enumerate(cohorts):
        weights, normed, works, counts = shares(p, cohort, weighting), [], [], []
        base = at(rate, t)
        for i in cohort:
            y, buffer, a, pulse, counted = x, 0.0, np.zeros(0), np.zeros(0), 0.0
            K = steps(i)
            for k in range(K):
                b = inside[k] if inside else 1.0
                g = p.gradient(i, y)
                buffer = rho * buffer + g
                direction = buffer + mu * (y - x)
                if compat:
                    buffer = direction
                y = y - base * b * direction
                # The weight of each gradient so far in the buffer, then in the displacement.
                pulse = np.append(rho * pulse, 1.0)
                a = (1 - base * b * mu) * np.append(a, 0.0) + b * pulse
                counted = (counted + pulse.sum()) * (1 - base * mu) + 1
            work = counted if compat else a.sum()
            normed.append((y - x) / work)
            works.append(work)
            counts.append(K)
        effective = weights @ np.array(works if tau == "norm" else counts, dtype=float)
        move = effective * (weights @ np.array(normed))
        u = outer * u + move / base
        x = x + base * u
        models.append(x)
    return np.array(models)


def weights_of_gradients(steps, rate, rho=0.0, mu=0.0, nesterov=False, inside=None):
    """a_j of y_K - x = -l sum_j a_j g_j, one by one; the pull mu (y - x) goes into the momentum with the gradient."""
    a, buffer = np.zeros(steps), np.zeros(steps)
    for k in range(steps):
        gradient = np.eye(steps)[k] - rate * mu * a
        buffer = rho * buffer + gradient
        a = a + (inside[k] if inside else 1.0) * (gradient + rho * buffer if nesterov else buffer)
    return a


def nova_scaffold(p, start, cohorts, rate, steps, tau="norm", weighting="samples", inside=None, outer=0.0):
    """x by FedNova, c_i by the client's own rates: c_i <- c_i - c + (x - y_i) / sum_k l_k, c <- c + sum / N."""
    x, models, u, N = start, [], 0.0, len(p.sizes)
    c, own = np.zeros_like(start), np.zeros((N, len(start)))
    for t, cohort in enumerate(cohorts):
        weights, normed, works, change = shares(p, cohort, weighting), [], [], np.zeros_like(start)
        for i in cohort:
            rates = at(rate, t) * np.array((inside or [1.0] * steps(i))[: steps(i)])
            y = x
            for each in rates:
                y = y - each * (p.gradient(i, y) - own[i] + c)
            new = own[i] - c + (x - y) / rates.sum()
            change, own[i] = change + new - own[i], new
            works.append(rates.sum() / at(rate, t))
            normed.append((y - x) / works[-1])
        effective = weights @ np.array(works if tau == "norm" else [steps(i) for i in cohort], dtype=float)
        u = outer * u + effective * (weights @ np.array(normed))
        x, c = x + u, c + change / N
        models.append(x)
    return np.array(models)


def nova_exp(
    p,
    start,
    cohorts,
    rate,
    steps,
    eps=0.0,
    rho=0.0,
    mu=0.0,
    nesterov=False,
    tau="norm",
    weighting="uniform",
    outer=0.0,
    extrapolates=True,
):
    """FedExP's rate from tau_eff Delta_i / A_i, ahead of the server's momentum; clients with momentum and a pull."""
    x, models, u = start, [], 0.0
    for t, cohort in enumerate(cohorts):
        weights, base, normed, works = shares(p, cohort, weighting), at(rate, t), [], []
        for i in cohort:
            y, buffer = x, 0.0
            for _ in range(steps(i)):
                g = p.gradient(i, y) + mu * (y - x)
                buffer = rho * buffer + g
                y = y - base * (g + rho * buffer if nesterov else buffer)
            works.append(weights_of_gradients(steps(i), base, rho, mu, nesterov).sum())
            normed.append((y - x) / works[-1])
        effective = weights @ np.array(works if tau == "norm" else [steps(i) for i in cohort], dtype=float)
        moves = effective * np.array(normed)
        mean = weights @ moves
        factor = max(1.0, weights @ (moves**2).sum(1) / (2 * (mean @ mean + eps))) if extrapolates else 1.0
        u = outer * u + factor * mean
        x = x + u
        models.append(x)
    return np.array(models)


def dynamic(p, start, cohorts, rate, steps, alpha, by_samples=False, serves="model", most=None) -> Vector:
    """FedDyn in the paper's form: g_i and h, x = mean_S y - h / alpha; with `by_samples` the code's sums s_i.

    The code reports three models: x, the mean of the participants ("mean"), and that of all last models ("clients").
    """
    N, x, models = len(p.sizes), start, []
    last = np.tile(start, (N, 1))
    gradients, h, sums = [np.zeros_like(start) for _ in range(N)], np.zeros_like(start), np.zeros((N, len(start)))
    for cohort in cohorts:
        ys = []
        for i in cohort:
            a = alpha * np.mean(p.sizes) / p.sizes[i] if by_samples else alpha
            own = -a * sums[i] if by_samples else gradients[i]
            y = x
            for _ in range(steps):
                y = y - rate * (shortened(p.gradient(i, y) - own - a * x, most) + a * y)
            gradients[i] = gradients[i] - a * (y - x)
            sums[i] += y - x
            last[i] = y
            ys.append(y)
        h = h - alpha / N * sum(y - x for y in ys)
        x = np.mean(ys, axis=0) + sums.mean(0) if by_samples else np.mean(ys, axis=0) - h / alpha
        models.append({"model": x, "mean": np.mean(ys, axis=0), "clients": last.mean(0)}[serves])
    return np.array(models)


def client_momentum(p, start, cohorts, rate, steps, alpha, eta=1.0, weighting="uniform", inside=None) -> Vector:
    """FedCM: M = sum w_i (x - y_i) / (sum of the rates that client i used)."""
    x, M, models = start, np.zeros_like(start), []
    for t, cohort in enumerate(cohorts):
        weights, moves, directions = shares(p, cohort, weighting), [], []
        for i in cohort:
            y, used = x, 0.0
            for k in range(steps(i)):
                step = at(rate, t) * (inside[k] if inside else 1.0)
                y, used = y - step * (alpha * p.gradient(i, y) + (1 - alpha) * M), used + step
            moves.append(y - x)
            directions.append((x - y) / used)
        x, M = x + eta * weights @ np.array(moves), weights @ np.array(directions)
        models.append(x)
    return np.array(models)


def speed(
    p,
    start,
    cohorts,
    rate,
    steps,
    q,
    rho,
    alpha=1.0,
    normalised=True,
    everybody=False,
    most=None,
    weighting="uniform",
) -> Vector:
    N, x, models, h = len(p.sizes), start, [], np.zeros((len(p.sizes), len(start)))
    for cohort in cohorts:
        ys = []
        for i in cohort:
            y = x
            for _ in range(steps):
                g = p.gradient(i, y)
                up = p.gradient(i, y + rho * (unit(g) if normalised else g))
                y = y - rate * (shortened((1 - alpha) * g + alpha * up + q * (h[i] - x), most) + q * y)
            h[i] += y - x
            ys.append(y)
        x = (
            np.mean(ys, axis=0) + h.sum(0) / N
            if everybody
            else shares(p, cohort, weighting) @ np.array([y + h[i] for i, y in zip(cohort, ys, strict=True)])
        )
        models.append(x)
    return np.array(models)


class Adam:
    """torch's AdamW for one client: decay first, then the corrected moments."""

    def __init__(self, size, b1, b2, eps, decay):
        self.m, self.v, self.n = np.zeros(size), np.zeros(size), 0
        self.b1, self.b2, self.eps, self.decay = b1, b2, eps, decay

    def step(self, y, g, rate):
        self.n += 1
        y = y * (1 - rate * self.decay)
        self.m = self.b1 * self.m + (1 - self.b1) * g
        self.v = self.b2 * self.v + (1 - self.b2) * g * g
        root = np.sqrt(self.v / (1 - self.b2**self.n)) + self.eps
        return y - rate * self.m / (1 - self.b1**self.n) / root


def diloco(p, start, cohorts, rate, steps, c, m, decay, clip=None, kept=True) -> Vector:
    x, u, models, states = start, 0.0, [], {}
    for cohort in cohorts:
        ys = []
        for i in cohort:
            state = (
                states.setdefault(i, Adam(len(x), 0.9, 0.95, 1e-8, decay))
                if kept
                else Adam(len(x), 0.9, 0.95, 1e-8, decay)
            )
            y = x
            for _ in range(steps):
                g = p.gradient(i, y)
                if clip is not None:
                    g = g * min(1.0, clip / (np.linalg.norm(g) + 1e-6))
                y = state.step(y, g, rate)
            ys.append(y)
        G = x - np.mean(ys, axis=0)
        u = m * u + G
        x = x - c * (G + m * u)
        models.append(x)
    return np.array(models)


def adamw(p, start, cohorts, rate, steps, alpha, decay, blocks, v_rule, one_count=False, inside=None, most=None):
    """FedAdamW; `blocks` cut the vector into tensors, `v_rule` is block_mean, whole or reset."""
    b1, b2, eps, x, models = 0.9, 0.999, 1e-8, start, []
    v, D, taken, before = np.zeros_like(start), np.zeros_like(start), 0, None
    for t, cohort in enumerate(cohorts):
        K, now = at(steps, t), at(rate, t)
        drive = D * (now / before if before else 1.0)
        ys, vs = [], []
        for i in cohort:
            y, m, mine = x, np.zeros_like(x), np.zeros_like(x) if v_rule == "reset" else v
            for k in range(1, K + 1):
                g, b = shortened(p.gradient(i, y), most), inside[k - 1] if inside else 1.0
                m, mine = b1 * m + (1 - b1) * g, b2 * mine + (1 - b2) * g * g
                count = k if v_rule == "reset" else taken + k
                mhat = m / (1 - b1 ** (count if one_count else k))
                y = y - now * b * (mhat / (np.sqrt(mine / (1 - b2**count)) + eps) + decay * y) + b * alpha / K * drive
            ys.append(y)
            vs.append(mine)
        D, v, taken, before = np.mean(ys, axis=0) - x, np.mean(vs, axis=0), taken + K, now
        if v_rule == "block_mean":
            v = np.concatenate([np.full(part.stop - part.start, v[part].mean()) for part in blocks])
        x = x + D
        models.append(x)
    return np.array(models)


def orthogonal(G):
    X = G / (np.linalg.norm(G) + 1e-7)
    X = X.T if G.shape[0] > G.shape[1] else X
    for _ in range(5):
        A = X @ X.T
        X = 3.4445 * X + (-4.775 * A + 2.0315 * A @ A) @ X
    return X.T if G.shape[0] > G.shape[1] else X


def muon(p, start, cohorts, rate, steps, gamma, b, factor, decay, shape, printed=False, most=None) -> Vector:
    """FedMuon for one matrix of this shape, followed by a vector; as released, or as the paper prints it."""
    rows, columns = shape
    cut = rows * columns
    x, D, M, models = start, np.zeros_like(start), np.zeros(shape), []
    for cohort in cohorts:
        ys, Ms = [], []
        for i in cohort:
            y, mine, adam = x, M, Adam(len(x) - cut, 0.9, 0.95, 1e-10, decay)
            for _ in range(steps):
                g = shortened(p.gradient(i, y), most)
                G = g[:cut].reshape(shape)
                if printed:
                    mine = b * mine + G
                    left, _, right = np.linalg.svd(mine, full_matrices=False)
                    u = left @ right
                else:
                    mine = b * mine + (1 - b) * G
                    u = orthogonal((1 - b) * G + b * mine)
                u = u * np.sqrt(max(1, rows / columns))
                r = rate * factor * (1 - gamma)
                matrix = y[:cut] * (1 - r * decay) - r * u.ravel()
                vector = adam.step(y[cut:], g[cut:], rate * (1 - gamma))
                y = np.concatenate([matrix, vector]) + gamma / steps * D
            ys.append(y)
            Ms.append(mine)
        D, M = np.mean(ys, axis=0) - x, np.mean(Ms, axis=0)
        x = x + D
        models.append(x)
    return np.array(models)
