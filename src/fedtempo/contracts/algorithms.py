"""What every algorithm and every backend must keep.

>>> from fedtempo.algorithms import fedavg
>>> check_algorithm(fedavg(lr=0.1, steps=3))
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

import fedtempo.algorithms as known
from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.backends import Backend, serial, vectorised
from fedtempo.client.objectives import Received
from fedtempo.data.federated import FederatedData
from fedtempo.errors import FedTempoError
from fedtempo.models.mlp import mlp
from fedtempo.params import Params
from fedtempo.training.result import Result
from fedtempo.training.run import run

TOLERANCE = 1e-12
_SIZES = (7, 12, 5, 16, 9, 10)


class ContractError(FedTempoError, AssertionError):
    """An algorithm, backend, model, metric or loss breaks a law of its kind."""


def check_algorithm(algorithm: Algorithm, **settings: Any) -> None:
    """Raise `ContractError` unless the algorithm is repeatable, backend-independent, private and can serve new clients.

    `settings` replace those of the small problem it is tried on, such as `model=` and `data=` of your own.
    """
    torch.manual_seed(122)
    np.random.seed(122)
    first = _run(algorithm, **settings)
    # One run more shows three laws: the same bits for the same seed, whatever was drawn elsewhere in the meantime, and
    # in whatever order clients come. Where it differs, or where a round drew nobody (`cohorts` cannot say that), each
    # law has runs of its own, which say what is broken.
    _draw_elsewhere()
    backwards = [list(report.clients)[::-1] for report in first.history]
    if not all(backwards) or _run(algorithm, **{**settings, "cohorts": backwards}).digest() != first.digest():
        _check_each_law(first, algorithm, **settings)
    require_kept(_run(algorithm, **{"seed": 8, **settings}).digest() != first.digest(), algorithm, "follows the seed")
    lanes = _run(algorithm, **{**settings, "backend": vectorised})
    difference = distance(first, lanes)
    require_kept(difference <= TOLERANCE, algorithm, f"is the same side by side (differs by {difference:.1e})")
    _check_hooks(first, algorithm, **settings)
    _check_upload(first, algorithm)
    rows = first.experiment.federation.problem.client_rows(0)
    first.personalize(rows)


def _check_hooks(first: Result, algorithm: Algorithm, **settings: Any) -> None:
    """An `after` that says it does not read a step's start and direction finds nothing else when it is given them."""
    if not any(hook.after is not None and not hook.reads_start for phase in algorithm.phases for hook in phase.hooks):
        return
    careful = algorithm.with_phases(
        lambda phase: replace(phase, hooks=tuple(hook._replace(reads_start=True) for hook in phase.hooks))
    )
    difference = distance(first, _run(careful, **settings))
    law = "has reads_start=True in each Hook whose `after` reads the start or the direction"
    require_kept(difference <= TOLERANCE, algorithm, f"{law} (differs by {difference:.1e})")


def _draw_elsewhere() -> None:
    torch.manual_seed(123)
    np.random.seed(123)
    torch.rand(5)


def _check_each_law(first: Result, algorithm: Algorithm, **settings: Any) -> None:
    """The same bits for the same seed, and for the same cohorts in another order."""
    _draw_elsewhere()
    law = "gives the same bits for the same seed and ignores the global generators"
    require_kept(_run(algorithm, **settings).digest() == first.digest(), algorithm, law)
    backwards = [cohort[::-1] for cohort in _COHORTS]
    ordered = _run(algorithm, **{**settings, "cohorts": _COHORTS}).digest()
    require_kept(
        _run(algorithm, **{**settings, "cohorts": backwards}).digest() == ordered, algorithm, "ignores cohort order"
    )


def check_backend(backend: Backend) -> None:
    """Raise `ContractError` unless the backend computes what the serial one does and keeps clients apart."""
    for algorithm in representative_algorithms():
        difference = distance(_run(algorithm), _run(algorithm, backend=backend))
        require_kept(
            difference <= TOLERANCE, backend.name, f"equals serial on {algorithm.name} (differs by {difference:.1e})"
        )
    _check_leakage(backend)


def representative_algorithms() -> tuple[Algorithm, ...]:
    """One algorithm for every mechanism: decay, clipping, control variates, heads, own models, mixtures."""
    return (
        known.feddecay(lr=0.1, beta=0.6, epochs=2, per="epoch"),
        known.fednar(known.scaffold(lr=0.1, steps=3), weight_decay=0.1, max_norm=0.5),
        known.fedexp(lr=0.1, epochs=1),
        known.pflego(head_lr=0.1, server_lr=0.1, steps=4),
        known.fedrep(lr=0.1, head_epochs=1, body_steps=2),
        known.ditto(lr=0.1, steps=2),
        known.pfedme(lr=0.01, personal_lr=0.05, lam=5.0, inner_steps=2, local_rounds=2),
        known.fedem(lr=0.1, steps=2, components=2),
    )


def distance(a: Result, b: Result) -> float:
    """The largest difference between two runs' final states, relative to the size of the state it is in."""
    pairs = [(a.at("last").shared, b.at("last").shared)]
    clients = range(len(a.experiment.federation.problem.data))
    pairs += [(a.client_state(c, "last"), b.client_state(c, "last")) for c in clients]
    return max((_relative(x, y) for x, y in pairs if x), default=0.0)


_COHORTS = [[0, 2, 4], [1, 3, 5], [0, 1, 5]]


def small_data(constant_client: int | None = None) -> FederatedData:
    """Six clients of unequal size, four classes; one client's inputs may be replaced by a constant."""
    rng = np.random.default_rng(0)
    clients = [(rng.standard_normal((n, 6)), rng.integers(0, 4, n)) for n in _SIZES]
    if constant_client is not None:
        x, y = clients[constant_client]
        clients[constant_client] = (np.full_like(x, 12.345678), np.zeros_like(y))
    return FederatedData.from_clients(clients)


def _run(algorithm: Algorithm, **settings: Any) -> Result:
    defaults = {
        "model": mlp(6, [5], 4),
        "data": small_data(),
        "rounds": 3,
        "cohort": 4,
        "batch_size": 4,
        "seed": 7,
        "dtype": torch.float64,
        "backend": serial,
        "block": 3,
        "evaluation": None,
        "progress": False,
    }
    return run(algorithm=algorithm, **{**defaults, **settings})


def _check_upload(result: Result, algorithm: Algorithm) -> None:
    """Of the model, only trained shared tensors and shared buffers leave a client; personal ones never do.

    What is sent under other names, such as FedNova's step count, must not depend on the client's personal tensors.
    """
    federation = result.experiment.federation
    received = Received(result.params, federation.algorithm.server.extra(result.server_state))
    client = int(federation.problem.data.clients[0])
    order = (federation.problem, federation.program, received, result.now, np.array([client]))
    (trained,) = serial.train(*order, [result.client_state(client)])
    groups, _, _ = federation.program.finish(received, trained.carry)
    model = {*federation.problem.network.parameters, *federation.problem.network.buffers}
    allowed = federation.trained_names | set(federation.problem.network.buffers)
    sent = {n for group, tensors in groups.items() for n in tensors if n in model and group != "squared_norm"}
    wrong = sent - (allowed - federation.personal_names)
    require_kept(not wrong, algorithm, f"sends shared tensors only (sends {sorted(wrong)})")
    own = {n: t + 1 if n in federation.personal_names else t for n, t in trained.carry.personal.items()}
    others, _, _ = federation.program.finish(received, trained.carry._replace(personal=own))
    told = [f"{g}/{n}" for g, tensors in groups.items() for n, t in tensors.items() if not t.equal(others[g][n])]
    require_kept(not told, algorithm, f"sends shared tensors only (personal ones decide {told})")
    require_kept(
        not set(result.params) & federation.personal_names, algorithm, "keeps personal tensors out of the shared model"
    )


def _check_leakage(backend: Backend) -> None:
    """Replacing one client's data changes nothing that another client in its block keeps."""
    algorithm = known.fedper(lr=0.1, steps=3)
    runs = [
        _run(algorithm, backend=backend, data=data, rounds=1, cohort=6, block=6)
        for data in (small_data(), small_data(0))
    ]
    for client in range(1, len(_SIZES)):
        difference = _relative(runs[0].client_state(client), runs[1].client_state(client))
        require_kept(
            difference <= TOLERANCE, backend.name, f"keeps clients apart (client {client} changed by {difference:.1e})"
        )


def _relative(a: Params, b: Params) -> float:
    if set(a) != set(b):
        return float("inf")
    size = max(float(t.double().abs().max()) for t in a.values() if t.numel())
    gap = max(float((t.double() - b[n].double()).abs().max()) for n, t in a.items() if t.numel())
    return gap / max(size, 1e-300)


def require_kept(holds: bool, what: object, promise: str) -> None:
    """Raise `ContractError` unless the promise holds."""
    if not holds:
        raise ContractError(f"{what!r} must keep its promise: it {promise}.")
