"""Every algorithm in a form that a small problem can be trained with, and four kinds of model."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import fedtempo as ft
from fedtempo import algorithms as a
from fedtempo.params import Params
from fedtempo.schedules import Position, decaying_k, per_round, per_step, qsr, then, warmup


def half(gradient: Params, weights: Params, now: Position) -> float:
    return 0.5


def tenth(gradient: Params, weights: Params, now: Position) -> float:
    return 0.1


ALGORITHMS: dict[str, ft.Algorithm] = {
    "fedsgd": a.fedsgd(lr=0.1),
    "fedavg": a.fedavg(lr=per_round(0.1, 0.9), epochs=2),
    "fedavg with momentum": a.fedavg(lr=0.05, steps=3, momentum=0.5, weighting="samples", server_lr=0.8),
    "reptile": a.reptile(lr=0.1, steps=3, server_lr=0.5),
    "fomaml": a.fomaml(lr=0.1, steps=3),
    "fomaml with an outer rate": a.fomaml(lr=0.1, epochs=1, server_lr=0.2),
    "feddecay": a.feddecay(lr=0.1, beta=0.6, steps=4),
    "feddecay linear": a.feddecay(lr=0.1, beta=0.6, steps=4, decay="linear"),
    "feddecay sequence": a.feddecay(lr=0.1, steps=3, decay=[1.0, 0.5, 0.1]),
    "feddecay of equal travel": a.feddecay(lr=0.05, beta=0.6, steps=4, travel="equal"),
    "feddecay per epoch": a.feddecay(lr=0.1, beta=0.6, epochs=3, per="epoch"),
    "feddecay by displacement": a.feddecay(lr=0.1, beta=0.6, epochs=3, per="epoch_displacement"),
    "fedprox": a.fedprox(lr=0.1, steps=3, mu=0.1),
    "scaffold": a.scaffold(lr=0.1, epochs=2),
    "scaffold option I": a.scaffold(lr=0.1, steps=3, option="I"),
    "fedavgm": a.fedavgm(lr=0.1, steps=3),
    "fedadam": a.fedadam(lr=0.1, steps=decaying_k(5, 0.8)),
    "fedadam corrected": a.fedadam(lr=0.1, steps=3, bias_correction=True),
    "fedadam of FedNAR": a.fedadam(lr=0.1, steps=3, fednar_compat=True),
    "fedyogi": a.fedyogi(lr=0.1, steps=3),
    "fedadagrad": a.fedadagrad(lr=0.1, steps=3),
    "fedexp": a.fedexp(lr=0.1, steps=3),
    "fednar": a.fednar(a.scaffold(lr=0.1, steps=3), weight_decay=0.1, max_norm=0.5),
    "clip then decay": a.clip_then_decay(a.fedavg(lr=0.1, steps=3), weight_decay=0.1, max_norm=0.5),
    "four at once": a.fednar(
        a.fedadam(lr=per_round(0.1, 0.99) * per_step(1.0, 0.7), steps=decaying_k(5, 0.9), server_lr=0.05),
        weight_decay=0.01,
        max_norm=1.0,
    ),
    "fednova": a.fednova(lr=0.1, epochs=2),
    "fednova with momentum and pull": a.fednova(lr=0.1, epochs=2, momentum=0.5, mu=0.2, server_momentum=0.3),
    "fednova around scaffold": a.work_normalised(a.scaffold(lr=0.1, epochs=2)),
    "fednova around fedexp": a.work_normalised(a.fedexp(lr=0.1, epochs=2, optimizer=ft.optimizers.sgd(0.5))),
    "feddyn": a.feddyn(lr=0.1, epochs=1, alpha=0.2),
    "feddyn as released": a.feddyn(lr=0.1, steps=3, alpha=0.2, alpha_by_samples=True, serves="mean"),
    "feddyn, all clients' mean": a.feddyn(lr=0.1, steps=3, alpha=0.2, serves="clients"),
    "fedcm": a.fedcm(lr=0.1, epochs=2, alpha=0.3),
    "fedspeed": a.fedspeed(lr=0.1, epochs=2),
    "fedspeed as released": a.fedspeed(lr=0.1, steps=3, alpha=0.7, history="all"),
    "diloco": a.diloco(lr=0.01, epochs=2, max_norm=1.0),
    "fedadamw": a.fedadamw(lr=0.01, epochs=2),
    "fedadamw as released": a.fedadamw(lr=0.01, steps=3, second_moment="whole", one_count=True),
    "fedmuon": a.fedmuon(lr=0.01, epochs=2),
    "delta-sgd": a.delta_sgd(a.fedavg(lr=0.1, epochs=2)),
    "fedsps": a.fedsps(a.fedprox(lr=0.5, epochs=2, mu=0.1)),
    "feddecsps": a.feddecsps(a.fedavg(lr=0.5, epochs=2)),
    "feddecsps of the data alone": a.feddecsps(a.fedprox(lr=0.5, epochs=2, mu=0.1), with_proximal=False),
    "fedhyper at the server": a.fedhyper_global(a.fedavg(lr=0.1, steps=3)),
    "fedhyper from the server": a.fedhyper_server(a.fedavg(lr=0.1, steps=3)),
    "fedhyper at clients": a.fedhyper_client(a.fedavg(lr=0.1, epochs=2), step=0.01),
    "stop early": a.stop_early(a.fedavg(lr=0.3, epochs=3), relative=0.8, patience=2),
    "fedsam": a.fedsam(a.fedavg(lr=0.1, epochs=2)),
    "fedlesam": a.fedlesam(a.fedavg(lr=0.1, epochs=2)),
    "fedlesam of all": a.fedlesam(a.fedavg(lr=0.1, steps=3), previous="global"),
    "fedinit": a.fedinit(a.fedavg(lr=0.1, epochs=2)),
    "five at once": a.fednar(
        a.stop_early(a.delta_sgd(a.fedsam(a.fedper(lr=per_step(0.1, 0.8), steps=4))), patience=3),
        weight_decay=0.01,
        max_norm=1.0,
    ),
    "steps from the rate": a.fedavg(
        lr=per_round(0.1, 0.8), steps=qsr(per_round(0.1, 0.8), alpha=0.15, most=6), optimizer=ft.optimizers.adamw()
    ),
    "fedavg with muon": a.fedavg(
        lr=then(warmup(0.1, 2), 2, 0.05), epochs=0.5, optimizer=ft.optimizers.muon(matrices="all")
    ),
    "fedavg with top-k": a.fedavg(lr=0.1, steps=3, compress=ft.compress.top_k(0.3)),
    "scaffold with signs": a.scaffold(
        lr=0.1, steps=3, compress=ft.compress.sign(), compress_down=ft.compress.rounding(12)
    ),
    "fednar with EF21": a.fednar(
        a.feddecay(lr=0.1, beta=0.6, steps=3, weighting="samples"),
        weight_decay=0.1,
        max_norm=0.5,
        compress=ft.compress.chain([ft.compress.random_k(0.5), ft.compress.qsgd(64)], feedback="ef21"),
    ),
    "pflego": a.pflego(head_lr=0.1, server_lr=0.2, steps=5),
    "pflego as released": a.pflego(
        head_lr=0.1, server_lr=0.05, steps=5, alpha_in_head_step=True, alpha_over="sampled", server_optimizer="adam"
    ),
    "fedper": a.fedper(lr=0.1, epochs=2),
    "fedrep": a.fedrep(lr=0.1, head_epochs=2, body_steps=2),
    "fedbabu": a.fedbabu(lr=0.1, steps=3),
    "fedrecon": a.fedrecon(lr=0.1, head_lr=0.2, head_steps=4, body_steps=2),
    "fedrecon stateful": a.fedrecon_stateful(head_lr=0.1, server_lr=0.1, head_steps=4),
    "ditto": a.ditto(lr=0.1, steps=3, lam=0.5, personal_steps=2),
    "pfedme": a.pfedme(lr=0.01, personal_lr=0.05, lam=5.0, inner_steps=2, local_rounds=3),
    "fedem": a.fedem(lr=0.1, epochs=1, components=2),
    "fedbn": a.fedbn(lr=0.1, steps=3),
    "local only": a.local_only(lr=0.1, epochs=2),
    "moon": a.moon(lr=0.1, steps=3, mu=0.5),
    "moon with two earlier models": a.moon(lr=0.1, steps=2, buffer=2, first_visit="initial"),
    "apfl": a.apfl(lr=0.1, steps=3, adaptive=True),
    "apfl of outputs": a.apfl(lr=0.1, epochs=1, alpha=0.3, mix="outputs"),
    "apfl, shared first": a.apfl(lr=0.1, steps=3, order="shared_first"),
    "lg_fedavg": a.lg_fedavg(lr=0.1, steps=3),
    "fedala": a.fedala(lr=0.1, steps=3, threshold=1.0, most_passes=12),
    "fedala of everybody": a.fedala(lr=0.1, steps=3, threshold=1.0, most_passes=12, mix_absent=True),
    "fedrod": a.fedrod(lr=0.1, steps=3),
    "fedbabu orthogonal": a.fedbabu(lr=0.1, steps=2, orthogonal=True),
    "fedbn averaged": a.fedbn(lr=0.1, steps=3, newcomer="averaged"),
    "q_fedavg": a.q_fedavg(lr=0.1, epochs=1, q=2.0),
    "q_fedsgd": a.q_fedsgd(lr=0.1, q=0.5),
    "afl": a.afl(lr=0.1, weights_lr=0.05),
    "loss_weighted": a.loss_weighted(a.scaffold(lr=0.1, steps=2), power=1.0, tilt=0.5),
    "scaffold by samples": a.scaffold(lr=0.1, epochs=1, control_weights="samples"),
    "pfedme of everybody": a.pfedme(
        lr=0.01, personal_lr=0.05, lam=5.0, inner_steps=2, local_rounds=2, train_absent=True
    ),
    "adaptive_decay": a.adaptive_decay(a.fedavg(lr=0.1, steps=3), rate=half, decay=tenth),
    "server_decay": a.server_decay(a.fedavgm(lr=0.1, steps=2), decay=0.01),
    "fednar layer by layer": a.fednar(
        a.apfl(lr=0.1, steps=3), weight_decay=0.1, max_norm=0.3, scope="layer", order="max"
    ),
    "fednar around pflego": a.fednar(a.pflego(head_lr=0.1, server_lr=0.2, steps=5), weight_decay=0.1, max_norm=0.3),
    "fednar around ditto": a.fednar(a.ditto(lr=0.1, steps=3), weight_decay=0.1, max_norm=0.3),
    "fednar around fedem": a.fednar(a.fedem(lr=0.1, steps=3, components=2), weight_decay=0.1, max_norm=0.3),
}


MECHANISMS = [
    *("fedavg with momentum", "feddecay by displacement", "scaffold", "four at once", "pflego", "fedrep", "ditto"),
    *("pfedme", "fedem", "fedbn", "moon", "apfl", "fedala"),
]
"""One algorithm for every mechanism: these run every time where the others run with `--slow`."""


LORA: dict[str, ft.Algorithm] = {
    "fedsa_lora": a.fedsa_lora(lr=0.1, steps=3),
    "ffa_lora": a.ffa_lora(lr=0.1, steps=3),
    "fedex_lora": a.fedex_lora(lr=0.1, steps=3),
}
"""Those that need a model with adapters: the kind "lora"."""
EVERYTHING = {**ALGORITHMS, **LORA}


class Adapted(nn.Module):
    """A linear layer with a LoRA adapter, laid out as `peft` lays it out."""

    def __init__(self, inputs: int, outputs: int, rank: int = 2, scale: float = 1.5) -> None:
        super().__init__()
        self.base_layer = nn.Linear(inputs, outputs).requires_grad_(False)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(inputs, rank, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(rank, outputs, bias=False)})
        self.scaling = {"default": scale}
        nn.init.zeros_(self.lora_B["default"].weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        adapted: torch.Tensor = self.lora_B["default"](self.lora_A["default"](x))
        plain: torch.Tensor = self.base_layer(x)
        return plain + self.scaling["default"] * adapted


def adapted(inputs: int, outputs: int) -> nn.Module:
    """A model of one adapted layer."""
    return nn.Sequential(Adapted(inputs, outputs))


class Recurrent(nn.Module):
    """The last state of a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(3, 5, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor = self.gru(x)[0]
        return states[:, -1]


class Two(nn.Module):
    """A body and a head."""

    def __init__(self, body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.body, self.head = body, head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.head(self.body(x))
        return output


def model(kind: str) -> nn.Module:
    """A small model of each kind, for four classes."""
    torch.manual_seed(0)
    if kind == "mlp":
        return ft.models.mlp(6, [8], 4)
    if kind == "dropout":
        return ft.models.mlp(6, [8], 4, dropout=0.3)
    if kind == "cnn":
        return ft.models.cnn((1, 8, 8), 4, channels=(3,), hidden=6)
    if kind == "lora":
        return Two(nn.Sequential(Adapted(6, 8), nn.Tanh()), Adapted(8, 4))
    if kind == "batchnorm":
        # No bias before BatchNorm: its gradient is pure rounding error, which Adam would blow up.
        body = nn.Sequential(nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU())
        return Two(body, nn.Linear(8, 4))
    return Two(Recurrent(), nn.Linear(5, 4))


SHAPES = {"mlp": (6,), "dropout": (6,), "cnn": (8, 8), "batchnorm": (6,), "gru": (5, 3)}
LORA_SHAPE = {"lora": (6,)}


def data(kind: str) -> ft.data.FederatedData:
    """Eight clients of unequal size, two of them new; no batch of four has a single row left over."""
    rng, shape = np.random.default_rng(0), {**SHAPES, **LORA_SHAPE}[kind]
    rows = [(rng.standard_normal((n, *shape)), rng.integers(0, 4, n)) for n in (7, 12, 6, 20, 10, 14, 4, 8)]
    tests = [(rng.standard_normal((3, *shape)), rng.integers(0, 4, 3)) for _ in rows]
    return ft.data.FederatedData.from_clients(rows, test=tests, new_clients=2)
