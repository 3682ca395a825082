"""A mean of the last round's uploads, which the server keeps and sends down: FedCM's, FedAdamW's, FedHyper's."""

from __future__ import annotations

from typing import Any

from fedtempo.client.objectives import Received
from fedtempo.params import Params, without_prefix, zeros_like
from fedtempo.schedules import Now
from fedtempo.server.step import Server, around
from fedtempo.server.sums import Aggregate


def sending_last_mean(server: Server, name: str, prefix: str, group: str = "delta") -> Server:
    """A server that also sends down the last round's mean of this group of the uploads; zero before there is one.

    `name` is the name of its state, and `prefix` leads the names of the tensors that come down.
    """

    def before(shared: Params, own: Any, aggregate: Aggregate, now: Now) -> tuple[Aggregate, Any]:
        return aggregate, aggregate.means[group]

    def sends(own: Any) -> Params:
        return {prefix + n: t for n, t in own.items()}

    return around(server, name, zeros_like, before, sends)


def last_mean(received: Received, prefix: str) -> Params:
    """What came down from `sending_last_mean`, under the names of the model's tensors."""
    return without_prefix(received.extra, prefix)
