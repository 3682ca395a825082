"""One small case of every personalised algorithm: what it shares, keeps and sends."""

from dataclasses import dataclass

from torch import nn

import fedtempo as ft
from tests.numbers.personalised.setting import (
    BODY,
    COMPONENTS,
    HEAD,
    NORM,
    START,
    NormNet,
    SplitNet,
    first_norm_state,
    run,
)

ALL = BODY + HEAD


@dataclass(frozen=True)
class Case:
    algorithm: ft.Algorithm
    shared: tuple[str, ...]
    personal: tuple[str, ...]
    sent: tuple[str, ...]
    model: type[nn.Module] = SplitNet
    start: object = None

    def run(self, cohorts: list[list[int]], **settings: object) -> ft.Result:
        start = START if self.start is None else self.start
        return run(self.algorithm, cohorts, **({"start": start, "model": self.model()} | settings))


CASES = {
    "pflego": Case(ft.algorithms.pflego(head_lr=0.3, server_lr=0.2, steps=3), BODY, HEAD, BODY),
    "fedper": Case(ft.algorithms.fedper(lr=0.3, steps=2), BODY, HEAD, BODY),
    "fedrep": Case(ft.algorithms.fedrep(lr=0.3, head_steps=2, body_steps=2), BODY, HEAD, BODY),
    "fedbabu": Case(ft.algorithms.fedbabu(lr=0.3, steps=2), ALL, (), BODY),
    "fedrecon": Case(ft.algorithms.fedrecon(lr=0.3, head_lr=0.3, head_steps=2), BODY, HEAD, BODY),
    "fedrecon_stateful": Case(
        ft.algorithms.fedrecon_stateful(head_lr=0.3, server_lr=0.2, head_steps=2), BODY, HEAD, BODY
    ),
    "ditto": Case(ft.algorithms.ditto(lr=0.3, steps=2, lam=0.5), ALL, ALL, ALL),
    "pfedme": Case(
        ft.algorithms.pfedme(lr=0.1, personal_lr=0.2, lam=1.5, inner_steps=2, local_rounds=2), ALL, ALL, ALL
    ),
    "fedem": Case(ft.algorithms.fedem(lr=0.3, steps=2, components=2), ALL, ("pi",), ALL, start=COMPONENTS[2]),
    "fedbn": Case(ft.algorithms.fedbn(lr=0.3, steps=2), ALL, NORM, ALL, NormNet, first_norm_state()),
    "local_only": Case(ft.algorithms.local_only(lr=0.3, steps=2), ALL, ALL, ()),
}
