"""Scores that are reused for users whose model has not changed since they were last scored.

Where users are served with a model of their own (Ditto, pFedMe, local training) and are not fine-tuned first, a user's
scores change only when the client has taken part. In serial code a user's bits do not depend on who else is scored. So
the scores of the others are reused, and a resumed run, which starts without them, still has the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from fedtempo.algorithms.algorithm import predict_personal
from fedtempo.data.parts import Part
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.evaluation.serving import served_phases, serves_as_held
from fedtempo.federation.federation import Federation
from fedtempo.params import Params
from fedtempo.schedules import Now

UserValues = dict[Part, dict[str, float]]
"""One user's scores by part and metric."""


@dataclass
class RememberedScores:
    """By user, the scores of the model that the user still holds."""

    known: dict[int, UserValues] = field(default_factory=dict)

    def forget(self, clients: Iterable[int]) -> None:
        """Drop the scores of clients that hold another model now."""
        for client in clients:
            self.known.pop(client, None)

    def unknown(self, clients: np.ndarray, parts: Iterable[Part]) -> np.ndarray:
        """Which of the users have to be scored."""
        wanted = set(parts)
        return np.array([c for c in clients.tolist() if set(self.known.get(c, ())) != wanted], dtype=clients.dtype)

    def learn(self, clients: np.ndarray, scores: dict[Part, dict[str, np.ndarray]]) -> None:
        """Keep the scores that users have just got."""
        for place, client in enumerate(clients.tolist()):
            self.known[client] = {part: {n: v[place] for n, v in values.items()} for part, values in scores.items()}

    def values(self, clients: np.ndarray, part: Part, metrics: Iterable[str]) -> dict[str, np.ndarray]:
        """The scores of all these users."""
        return {n: np.array([self.known[client][part][n] for client in clients.tolist()]) for n in metrics}


def memory_for(federation: Federation, protocol: Evaluation, serial: bool, shared: Params) -> RememberedScores | None:
    """An empty memory if scores depend only on what a client keeps, else None."""
    if not serial or federation.algorithm.serving.predict is not predict_personal:
        return None
    served = served_phases(federation, protocol, newcomers=False)
    # Where fine-tuning follows a schedule, users may be served as they are now and be fine-tuned later.
    always = serves_as_held(served, Now()) and all(phase.length.count.is_constant for phase in served.phases)
    own = federation.first_personal(int(federation.problem.data.clients[0]), shared)
    return RememberedScores() if always and federation.moving_names <= own.keys() else None
