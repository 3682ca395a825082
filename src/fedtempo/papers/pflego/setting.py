"""What the PFLEGO paper's experiments share: who gets which classes, the methods, how users are served, the loss."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from fedtempo.algorithms import Algorithm, fedavg, fedper, pflego
from fedtempo.backends import engine_for
from fedtempo.data import Split, Table
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.evaluation.scoring import Evaluator
from fedtempo.papers.framework.frame import Column, Measured, Scale
from fedtempo.training.result import Result

PFLEGO, FEDPER, FEDAVG = "PFLEGO", "FedPer", "FedAvg"
TUNED, KEPT, LOSS = "existing_after/mean", "existing_before/mean", "joint_loss"
COLUMNS = {
    TUNED: Column("test accuracy after a round's own steps"),
    KEPT: Column("before them"),
    LOSS: Column("training loss (1)"),
}
SERVED = (
    "Accuracy is the mean over all clients after the last round, served with what a client has after one more round's "
    "own steps: all parameters for FedPer and for methods with one model, the head for PFLEGO, FedRep and FedRecon. "
    "The paper does not say so, but its FedAvg values cannot be had otherwise: no shared model can name the characters "
    "of alphabets that are each numbered from 0. "
    "'Before them' is the received body, or model, with what the client kept."
)
ADAM = "PFLEGO's server takes Adam steps, as in the released code; the paper speaks of SGD only (SGD: eq. 4)."


@dataclass(frozen=True)
class Method:
    """An algorithm, which parameters a client's own steps move, and whether heads fit the client's own classes."""

    algorithm: Algorithm
    tunes: Literal["all", "head"] = "all"
    own_classes: bool = True

    def evaluation(self, scale: Scale) -> Evaluation:
        """Served after one more round's own steps."""
        return Evaluation(every=scale["every"], steps=scale["tau"], trains=self.tunes)


def three_methods(scale: Scale) -> dict[str, Method]:
    """PFLEGO, FedPer and FedAvg with the scale's beta (the clients' rate), rho (the server's) and tau."""
    beta, tau = scale["beta"], scale["tau"]
    return {
        PFLEGO: Method(pflego(beta, scale["rho"], tau, server_optimizer="adam"), "head"),
        FEDPER: Method(fedper(beta, tau)),
        FEDAVG: Method(fedavg(beta, tau, weighting="samples"), own_classes=False),
    }


def pflego_settings(scale: Scale, seed: int, method: Method) -> dict[str, Any]:
    """Settings of `fedtempo.run` that all runs have: every step sees all of a client's rows."""
    return {
        "rounds": scale["rounds"],
        "cohort": scale["cohort"],
        "batch_size": None,
        "seed": seed,
        "evaluation": method.evaluation(scale),
    }


def joint_loss(result: Result) -> Measured:
    """The paper's training loss (1) at the end: over all clients' training rows, with the heads they kept."""
    experiment = result.experiment
    federation = experiment.federation
    last = result.at("last")
    extra = federation.algorithm.server.extra(last.server)
    with engine_for(federation, experiment.backend, 1) as engine:
        personal_of = partial(result.client_state, which="last")
        evaluator = Evaluator(federation, engine, Evaluation(steps=0), experiment.block, personal_of)
        (scores,) = evaluator.scores(result.served("last"), extra, last.now, "train")
    return Measured({LOSS: scores.existing_before.summary("loss")["weighted_mean"]})


def random_classes(clients: int, classes: int) -> Split:
    """Every client has `classes` classes drawn at random (section 4.3); a class's rows are dealt among its owners.

    Where the table has fewer classes, as a sample of it may, every client has them all.
    """

    def assign(table: Table, rng: np.random.Generator) -> np.ndarray:
        known = np.unique(table.labels)
        count = min(classes, len(known))
        wanted = np.stack([rng.choice(known, count, replace=False) for _ in range(clients)])
        owner = np.full(len(table), -1, dtype=np.int64)
        for label in known:
            owners = np.flatnonzero((wanted == label).any(axis=1))
            rows = rng.permutation(np.flatnonzero(table.labels == label))
            if len(owners):
                owner[rows] = np.resize(owners, len(rows))
        return owner

    return Split("random_classes", {"clients": clients, "classes": classes}, assign)


def fewest_rows(clients: int) -> Split:
    """The data set's own clients that have the fewest rows, so many of them."""

    def assign(table: Table, rng: np.random.Generator) -> np.ndarray:
        names, rows = np.unique(np.asarray(table.keys), return_counts=True)
        chosen = np.sort(names[np.argsort(rows, kind="stable")[:clients]])
        places = np.searchsorted(chosen, np.asarray(table.keys)).clip(max=len(chosen) - 1)
        return np.where(chosen[places] == table.keys, places, -1)

    return Split("fewest_rows", {"clients": clients}, assign)
