"""What the PFLEGO paper's experiments share: who gets which classes, the methods, how users are served, the loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from fedtempo.algorithms import Algorithm, fedavg, fedper, pflego, with_server
from fedtempo.backends import engine_for
from fedtempo.client.transforms import scale_by_adam
from fedtempo.data import Split, Table
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.evaluation.scoring import Evaluator
from fedtempo.papers.framework.definitions import (
    Column,
    Measure,
    Measured,
    Scale,
    Settling,
    TunedSetting,
    Tuning,
    score_column,
)
from fedtempo.papers.framework.measures import learning, train_loss, users
from fedtempo.training.result import Result

PFLEGO, FEDPER, FEDAVG = "PFLEGO", "FedPer", "FedAvg"
PFLEGO_SGD, FEDPER_ADAM = "PFLEGO, SGD at the server", "FedPer, Adam at the server"
TUNED, KEPT, LOSS = "existing_after/mean", "existing_before/mean", "joint_loss"
COLUMNS = {
    TUNED: score_column("test accuracy after a round's own steps"),
    KEPT: score_column("before them"),
    LOSS: Column("training loss (1)"),
}
SERVED = (
    "Accuracy is the mean over all clients, at paper scale over the last ten rounds as in the paper, otherwise after "
    "the round that validation selects or the last, served with what a client has after one more round's "
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
        last = scale.settings.get("last", 1)
        return Evaluation(every=scale["every"], steps=scale["tau"], trains=self.tunes, last=last)


def three_methods(scale: Scale, of: str = "") -> dict[str, Method]:
    """PFLEGO, FedPer and FedAvg with the scale's beta (the clients' rate), rho (the server's) and tau.

    What is tuned has the label's name, after `of`: rho for PFLEGO, beta for the others.
    """
    beta, tau = scale["beta"], scale["tau"]
    rho = scale.rate(of + PFLEGO, scale["rho"])
    return {
        PFLEGO: Method(pflego(beta, rho, tau, server_optimizer="adam"), "head"),
        FEDPER: Method(fedper(scale.rate(of + FEDPER, beta), tau)),
        FEDAVG: Method(fedavg(scale.rate(of + FEDAVG, beta), tau, weighting="samples"), own_classes=False),
    }


def five_methods(scale: Scale, of: str = "") -> dict[str, Method]:
    """The three, PFLEGO as printed (SGD at the server), and FedPer with PFLEGO's Adam at the server.

    With the last two one can tell what the server's optimizer is worth from what exact gradients are.
    """
    beta, tau = scale["beta"], scale["tau"]
    printed = pflego(beta, scale.rate(of + PFLEGO_SGD, scale["rho"]), tau)
    rate = scale.rate(of + FEDPER_ADAM, scale["rho"])
    adam = with_server(fedper(beta, tau), scale_by_adam(), rate)
    # A server's optimizer has no text of its own, and runs are known by what their algorithm prints as.
    described = replace(adam, name="fedper_adam", settings={"lr": beta, "steps": tau, "server_lr": rate})
    return {**three_methods(scale, of), PFLEGO_SGD: Method(printed, "head"), FEDPER_ADAM: Method(described)}


CANDIDATES = {
    PFLEGO: (0.0003, 0.001, 0.003),
    PFLEGO_SGD: (0.02, 0.07, 0.2),
    FEDPER: (0.02, 0.07, 0.2),
    FEDPER_ADAM: (0.001, 0.003, 0.01),
    FEDAVG: (0.02, 0.07, 0.2),
}
"""Three for each, around the paper's rate for as much travel in a round."""
TUNING_ROUNDS = 100
"""A trial is half as long as a judged run."""
CONVERGED = Settling("existing_after", within=0.005)


def pflego_tuning(
    *prefixes: str, candidates: Mapping[str, tuple[float, ...]] = CANDIDATES, rounds: int = TUNING_ROUNDS
) -> Tuning:
    """Every method of every prefix, by the validation rows of existing users."""
    contestants = {
        prefix + label: TunedSetting(prefix + label, values)
        for prefix in prefixes or ("",)
        for label, values in candidates.items()
    }
    return Tuning(contestants, "existing_after/best", settings={"rounds": rounds})


def pflego_settings(scale: Scale, seed: int, method: Method) -> dict[str, Any]:
    """Settings of `fedtempo.run` that all runs have: every step sees all of a client's rows."""
    return {
        "rounds": scale["rounds"],
        "cohort": scale["cohort"],
        "batch_size": None,
        "seed": seed,
        "evaluation": method.evaluation(scale),
    }


def pflego_measures(scale: Scale) -> tuple[Measure, ...]:
    """Users' scores, the losses and the learning curve; scores over the last rounds where the scale says how many."""
    last = scale.settings.get("last")
    found: tuple[Measure, ...] = (users, joint_loss, train_loss, partial(learning, group="existing_after"))
    return found if last is None else (*found, partial(mean_of_last, last=last))


def mean_of_last(result: Result, last: int) -> Measured:
    """The means over users, averaged over the last evaluated rounds, in place of the last round's alone."""
    groups = {"existing_after": TUNED, "existing_before": KEPT}
    return Measured({name: learning(result, group, last).values[f"{group}/last"] for group, name in groups.items()})


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
