"""The methods of the experiments by hand: a client's round, what the server does with the mean upload, who is served.

Written once over `Site`, for the lean loop and for frameworks that let their users write the client's half in torch.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.experiments.plan import DECAY, DITTO, HEAD_STEPS, MOST, RHO, Experiment
from benchmarks.experiments.site import Site, Tensors


class Sent(NamedTuple):
    """What a client sends, by group, and what it keeps."""

    upload: Tensors
    kept: Tensors


class Method:
    """Plain FedAvg; the others replace some of it."""

    private: str | None = None
    """The part of the network that clients keep for themselves."""

    def first(self, site: Site) -> tuple[Tensors, Tensors]:
        """What the server sends in the first round, and what every client keeps at first."""
        own = site.names(self.private) if self.private else []
        return {n: t for n, t in site.first.items() if n not in own}, {n: site.first[n] for n in own}

    def client(self, site: Site, client: int, sent: Tensors, kept: Tensors) -> Sent:
        """A client's round."""
        site.load(sent)
        site.descend(site.trained, site.batches(client, site.experiment.steps), site.experiment.lr)
        return Sent(site.copied(list(sent)), {})

    def server(self, experiment: Experiment, sent: Tensors, mean: Tensors) -> Tensors:
        """What is sent in the next round."""
        return mean

    def serve(self, site: Site, sent: Tensors, kept: Tensors) -> None:
        """Load the model that a user is served with."""
        site.load({n: t for n, t in sent.items() if n in site.moving})
        site.load(kept)


class FedPer(Method):
    """Joint steps on body and head; the head stays."""

    private = "head"

    def client(self, site: Site, client: int, sent: Tensors, kept: Tensors) -> Sent:
        site.load(sent)
        site.load(kept)
        self.steps(site, client)
        return Sent(site.copied(list(sent)), site.copied(list(kept)))

    def steps(self, site: Site, client: int) -> None:
        """What is trained in which order."""
        site.descend(site.trained, site.batches(client, site.experiment.steps), site.experiment.lr)


class FedRep(FedPer):
    """First the head, then the body."""

    def steps(self, site: Site, client: int) -> None:
        e = site.experiment
        site.descend(site.names("head"), site.batches(client, HEAD_STEPS), e.lr)
        site.descend(site.names("body"), site.batches(client, e.steps - HEAD_STEPS), e.lr)


class PFLEGO(Method):
    """Steps on the head over features that are computed once, then one joint gradient."""

    private = "head"

    def client(self, site: Site, client: int, sent: Tensors, kept: Tensors) -> Sent:
        e = site.experiment
        site.load(sent)
        site.load(kept)
        site.network.train()
        x, y = site.rows(client, "train")
        head = [site.parameters[n] for n in kept]
        with torch.no_grad():
            features = site.network.body(x)
        for _ in range(e.steps - 1):
            found = torch.autograd.grad(F.cross_entropy(site.network.head(features), y), head)
            with torch.no_grad():
                torch._foreach_add_(head, found, alpha=-e.lr)
        joint = site.gradients(x, y)
        with torch.no_grad():
            torch._foreach_add_(head, [joint[n] for n in kept], alpha=-RHO * e.clients / e.cohort)
        return Sent({n: joint[n] for n in sent}, site.copied(list(kept)))

    def server(self, experiment: Experiment, sent: Tensors, mean: Tensors) -> Tensors:
        # The sum over the cohort with weights 1 / clients, times clients / cohort, is the mean over the cohort.
        return {n: t - RHO * mean[n] for n, t in sent.items()}


class Ditto(Method):
    """Every client's own model is drawn to the one it received; the shared one is FedAvg's."""

    def first(self, site: Site) -> tuple[Tensors, Tensors]:
        return dict(site.first), dict(site.first)

    def client(self, site: Site, client: int, sent: Tensors, kept: Tensors) -> Sent:
        e, centre = site.experiment, [sent[n] for n in site.trained]

        def pull(found: list[Tensor], moved: list[Tensor]) -> None:
            torch._foreach_add_(found, torch._foreach_sub(moved, centre), alpha=DITTO)

        site.load(kept)
        site.descend(site.trained, site.batches(client, e.steps), e.lr, pull)
        own = site.copied(list(kept))
        return Sent(super().client(site, client, sent, kept).upload, own)


class NormalisedScaffold(Method):
    """SCAFFOLD's control variates in every gradient; weight decay and gradient are clipped together (FedNAR)."""

    control = "control/"

    def first(self, site: Site) -> tuple[Tensors, Tensors]:
        zeros = {n: torch.zeros_like(site.first[n]) for n in site.trained}
        return {**site.first, **{self.control + n: t for n, t in zeros.items()}}, zeros

    def client(self, site: Site, client: int, sent: Tensors, kept: Tensors) -> Sent:
        e, names = site.experiment, site.trained
        common = [sent[self.control + n] for n in names]
        drift = torch._foreach_sub(common, [kept[n] for n in names])

        def correct(found: list[Tensor], moved: list[Tensor]) -> None:
            torch._foreach_add_(found, drift)
            torch._foreach_add_(found, [p.detach() for p in moved], alpha=DECAY)
            norm = math.sqrt(sum(float(n) ** 2 for n in torch._foreach_norm(found)))
            if norm > MOST:
                torch._foreach_mul_(found, MOST / norm)

        site.load({n: t for n, t in sent.items() if n in site.moving})
        site.descend(names, site.batches(client, e.steps), e.lr, correct)
        reached = site.copied(list(site.moving))
        own = {n: kept[n] - c + (sent[n] - reached[n]) / (e.steps * e.lr) for n, c in zip(names, common, strict=True)}
        return Sent({**reached, **{self.control + n: own[n] - kept[n] for n in names}}, own)

    def server(self, experiment: Experiment, sent: Tensors, mean: Tensors) -> Tensors:
        share = experiment.cohort / experiment.clients
        return {n: sent[n] + share * t if n.startswith(self.control) else t for n, t in mean.items()}

    def serve(self, site: Site, sent: Tensors, kept: Tensors) -> None:
        super().serve(site, sent, {})


METHODS: dict[str, Method] = {
    "FedAvg": Method(),
    "FedPer": FedPer(),
    "FedRep": FedRep(),
    "PFLEGO": PFLEGO(),
    "Ditto": Ditto(),
    "FedNAR on SCAFFOLD": NormalisedScaffold(),
}


def scored(site: Site, method: Method, client: int, sent: Tensors, kept: Tensors) -> list[float]:
    """A user's accuracy, and where users are tuned also the one after an epoch of fine-tuning."""
    e = site.experiment
    method.serve(site, sent, kept)
    before = site.score(client)
    if not e.tunes:
        return [before]
    site.descend(site.trained, site.batches(client, -(-e.train // e.batch)), e.lr)
    return [before, site.score(client)]
