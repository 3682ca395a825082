"""FedInit: a client starts a little away from its own last model. A plug-in for any algorithm."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch

from fedtempo.algorithms.algorithm import Algorithm, displacement
from fedtempo.algorithms.named import named
from fedtempo.algorithms.parts.notes import SEEN, noting
from fedtempo.algorithms.parts.rate_rules import AVERAGED, HISTORY, moving
from fedtempo.client.local_step import SENT, START
from fedtempo.client.objectives import Received
from fedtempo.client.phase import Carry
from fedtempo.errors import ConfigError, require
from fedtempo.params import Params, norm, select
from fedtempo.server.sums import Groups

OFFSET = "_offset/"
"""Leads the names of y_0 - x among a client's notes."""


@named
def fedinit(
    algorithm: Algorithm,
    *,
    beta: float = 0.1,
    sends: Literal["models", "displacements"] = "models",
    unseen: Literal["none", "initial"] = "none",
    most: float | None = None,
) -> Algorithm:
    """y_0 = x + beta (x - z_i), with z_i the client's model after its last round.

    Sun et al. (2023), relaxed initialisation. `sends="models"` averages y_K, as in the paper; `"displacements"`
    averages y_K - y_0, as in the authors' code, and is what an algorithm with an upload of its own needs. The two agree
    where everybody takes part with equal weights. A client in its first round starts at x; with `unseen="initial"`, as
    in the code, its z_i is the run's first model. `most` bounds |y_0 - x|. Proximal and other terms of the algorithm
    are centred at y_0.
    """
    require(most is None or most > 0, "most", "a number > 0 or None", most)
    if sends == "models" and algorithm.uploads.upload is not displacement:
        raise ConfigError(f"sends must be 'displacements' around {algorithm.name}: it sends no model. Got {sends!r}.")

    def first(shared: Params, trained: frozenset[str]) -> Params:
        seen = torch.full((), float(unseen == "initial"), dtype=torch.float64)
        return {SEEN: seen, **select(shared, trained)}

    def use(received: Received, notes: Params) -> tuple[Received, Params]:
        factor = beta * notes[SEEN]
        x = {n: received.shared[n] for n in notes if n != SEEN}
        offset = {n: (factor * (p - notes[n])).to(p.dtype) for n, p in x.items()}
        if most is not None:
            length = norm(offset)
            short = torch.where(length > most, most / torch.where(length > 0, length, 1.0), 1.0)
            offset = {n: o * short.to(o.dtype) for n, o in offset.items()}
        start = {n: p + offset[n] for n, p in x.items()}
        sent = {SENT + n: p for n, p in x.items()}
        scratch = {**sent, **{START + n: p for n, p in start.items()}, **{OFFSET + n: o for n, o in offset.items()}}
        return Received({**received.shared, **start}, {**received.extra, **sent}), scratch

    def then(received: Received, carry: Carry, notes: Params) -> Params:
        return {SEEN: torch.ones_like(notes[SEEN]), **select(carry.shared, notes)}

    def upload(received: Received, carry: Carry) -> Groups:
        groups = algorithm.uploads.upload(received, carry)
        delta = {n: d + carry.scratch.get(OFFSET + n, 0.0) for n, d in groups["delta"].items()}
        return {**groups, "delta": delta}

    wrapped = moving(algorithm, "fedinit").claimed("where clients start", "fedinit")
    if sends == "models":
        wrapped = wrapped.leaving(HISTORY, "fedinit with sends='models'")
        wrapped = replace(wrapped, owns=wrapped.owns | {AVERAGED})
    uploads = replace(wrapped.uploads, upload=upload) if sends == "models" else wrapped.uploads
    return replace(wrapped, memory=noting(wrapped, "_init/", first, use, then), uploads=uploads)
