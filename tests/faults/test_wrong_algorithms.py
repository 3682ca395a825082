"""Wrong settings are a ConfigError before any round is trained, whether a number or a schedule carries them."""

import math

import pytest
import torch

import fedtempo as ft
from fedtempo import algorithms as fl
from fedtempo.client.transforms import scale_by_adam
from fedtempo.schedules import as_schedule, constant, decaying_k, decaying_lr, per_round, piecewise, sequence
from tests.numbers.single_model.problem import HAND

NAN = float("nan")


def nan_later(now: ft.Now) -> float:
    return 0.1 if now.round < 2 else NAN


def nan_inside(now: ft.Now) -> float:
    """Not a number in one step in the middle of the run."""
    return NAN if (now.round, now.step) == (1, 1) else 0.1


def infinite(now: ft.Now) -> float:
    return math.inf


def prepare(build) -> None:
    """Build the algorithm and bind the experiment; `ft.train` checks everything before its first round."""
    ft.train(
        model=HAND.model(),
        data=ft.data.FederatedData.from_clients(list(HAND.clients)),
        algorithm=build(),
        rounds=4,
        batch_size=None,
        dtype=torch.float64,
        loss="regression",
        evaluation=None,
    )


def nar(**settings):
    return fl.fednar(fl.fedavg(lr=0.1, steps=2), **{"weight_decay": 0.1, "max_norm": 1.0, **settings})


def baseline(**settings):
    return fl.clip_then_decay(fl.fedavg(lr=0.1, steps=2), **{"weight_decay": 0.1, "max_norm": 1.0, **settings})


def avg(**settings):
    return fl.fedavg(**{"lr": 0.1, "steps": 2, **settings})


def prox(mu):
    return fl.fedprox(lr=0.1, steps=2, mu=mu)


WRONG = {
    "mu < 0": lambda: prox(-0.1),
    "mu NaN": lambda: prox(NAN),
    "mu a negative schedule": lambda: prox(per_round(-1.0, 0.5)),
    "mu a schedule that becomes NaN": lambda: prox(as_schedule(nan_later)),
    "max_norm 0": lambda: nar(max_norm=0.0),
    "max_norm < 0": lambda: nar(max_norm=-1.0),
    "max_norm NaN": lambda: nar(max_norm=NAN),
    "max_norm a schedule of 0": lambda: nar(max_norm=constant(0.0)),
    "max_norm a schedule that falls to 0": lambda: nar(max_norm=piecewise(1.0, {2: 0.0})),
    "max_norm a negative schedule": lambda: nar(max_norm=per_round(-1.0, 0.5)),
    "max_norm a schedule that becomes NaN": lambda: nar(max_norm=as_schedule(nan_later)),
    "weight_decay < 0": lambda: nar(weight_decay=-0.1),
    "weight_decay NaN": lambda: nar(weight_decay=NAN),
    "weight_decay a negative schedule": lambda: nar(weight_decay=per_round(-1.0, 0.5)),
    "weight_decay a schedule that becomes NaN": lambda: nar(weight_decay=as_schedule(nan_later)),
    "the baseline's max_norm 0": lambda: baseline(max_norm=0.0),
    "the baseline's weight_decay < 0": lambda: baseline(weight_decay=-0.1),
    "server momentum < 0": lambda: fl.fedavgm(lr=0.1, steps=2, momentum=-0.1),
    "server momentum 1": lambda: fl.fedavgm(lr=0.1, steps=2, momentum=1.0),
    "server momentum > 1": lambda: fl.fedavgm(lr=0.1, steps=2, momentum=1.5),
    "server momentum NaN": lambda: fl.fedavgm(lr=0.1, steps=2, momentum=NAN),
    "client momentum 1": lambda: avg(momentum=1.0),
    "client momentum < 0": lambda: avg(momentum=-0.5),
    "b1 = 1": lambda: fl.fedadam(lr=0.1, steps=2, b1=1.0),
    "b1 < 0": lambda: fl.fedadam(lr=0.1, steps=2, b1=-0.1),
    "b2 = 1": lambda: fl.fedadam(lr=0.1, steps=2, b2=1.0),
    "b2 = 1 in Yogi": lambda: fl.fedyogi(lr=0.1, steps=2, b2=1.0),
    "b1 = 1 in the FedNAR code's Adam": lambda: fl.fedadam(lr=0.1, steps=2, b1=1.0, fednar_compat=True),
    "Adam's eps < 0": lambda: fl.fedadam(lr=0.1, steps=2, eps=-1e-3),
    "Adagrad's eps < 0": lambda: fl.fedadagrad(lr=0.1, steps=2, eps=-1e-3),
    "lr < 0": lambda: avg(lr=-0.1),
    "lr NaN": lambda: avg(lr=NAN),
    "lr a negative schedule": lambda: avg(lr=per_round(-0.1, 0.5)),
    "lr a schedule that becomes NaN": lambda: avg(lr=nan_later),
    "lr a schedule that is NaN inside": lambda: avg(lr=nan_inside),
    "lr infinite": lambda: avg(lr=infinite),
    "server_lr < 0": lambda: avg(server_lr=-1.0),
    "server_lr a schedule that becomes NaN": lambda: avg(server_lr=nan_later),
    "Adam's server_lr a negative schedule": lambda: fl.fedadam(lr=0.1, steps=2, server_lr=per_round(-1.0, 0.5)),
    "SCAFFOLD's server_lr a schedule that becomes NaN": lambda: fl.scaffold(lr=0.1, steps=2, server_lr=nan_later),
    "with_server's rate NaN": lambda: fl.with_server(avg(), scale_by_adam(), nan_later),
    "steps 0": lambda: avg(steps=0),
    "steps < 0": lambda: avg(steps=-1),
    "steps NaN": lambda: avg(steps=NAN),
    "steps a schedule of 0": lambda: avg(steps=constant(0)),
    "steps a negative schedule": lambda: avg(steps=per_round(-3, 0.5)),
    "steps a schedule that falls to 0": lambda: avg(steps=sequence([3, 2, 0], over="round")),
    "steps a schedule that becomes NaN": lambda: avg(steps=nan_later),
    "epochs 0": lambda: avg(steps=None, epochs=0),
    "neither steps nor epochs": lambda: avg(steps=None),
    "steps and epochs": lambda: avg(epochs=1),
    "SCAFFOLD's steps 0": lambda: fl.scaffold(lr=0.1, steps=0),
    "FOMAML's steps 0": lambda: fl.fomaml(lr=0.1, steps=0),
    "FOMAML's outer rate < 0": lambda: fl.fomaml(lr=0.1, steps=2, server_lr=-1.0),
    "Reptile's outer rate a schedule that becomes NaN": lambda: fl.reptile(lr=0.1, steps=2, server_lr=nan_later),
    "SCAFFOLD's option": lambda: fl.scaffold(lr=0.1, steps=2, option="III"),
    "FedExP's eps < 0": lambda: fl.fedexp(lr=0.1, steps=2, eps=-1.0),
    "FedExP's eps a schedule that becomes NaN": lambda: fl.fedexp(lr=0.1, steps=2, eps=nan_later),
    "beta < 0": lambda: fl.feddecay(lr=0.1, beta=-0.1, steps=2),
    "beta NaN": lambda: fl.feddecay(lr=0.1, beta=NAN, steps=2),
    "linear beta > 1": lambda: fl.feddecay(lr=0.1, beta=1.5, steps=2, decay="linear"),
    "no beta": lambda: fl.feddecay(lr=0.1, steps=2),
    "an unknown decay": lambda: fl.feddecay(lr=0.1, beta=0.5, steps=2, decay="cubic"),
    "a decay sequence with NaN": lambda: fl.feddecay(lr=0.1, steps=2, decay=[1.0, NAN]),
    "an empty decay sequence": lambda: fl.feddecay(lr=0.1, steps=2, decay=[]),
    "an unknown granularity": lambda: fl.feddecay(lr=0.1, beta=0.5, steps=2, per="batch"),
    "K_0 = 0": lambda: avg(steps=decaying_k(0, 0.5)),
    "d_K = 0": lambda: avg(steps=decaying_k(3, 0.0)),
    "d_K > 1": lambda: avg(steps=decaying_k(3, 1.1)),
    "d_gamma > 1": lambda: avg(lr=decaying_lr(0.1, 1.1)),
    "weighting": lambda: avg(weighting="equal"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input(name):
    with pytest.raises(ft.ConfigError):
        prepare(WRONG[name])


WITHOUT_HEAD = {
    "fedper": lambda: fl.fedper(lr=0.1, steps=1),
    "fedrep": lambda: fl.fedrep(lr=0.1, head_steps=1, body_steps=1),
    "fedbabu": lambda: fl.fedbabu(lr=0.1, steps=1),
    "fedbabu orthogonal": lambda: fl.fedbabu(lr=0.1, steps=1, orthogonal=True),
    "pflego": lambda: fl.pflego(head_lr=0.1, server_lr=0.1, steps=2),
    "fedrod": lambda: fl.fedrod(lr=0.1, steps=1),
    "fedala": lambda: fl.fedala(lr=0.1, steps=1),
    "fedala without a top": lambda: fl.fedala(lr=0.1, steps=1, top=ft.params.nothing),
}


@pytest.mark.parametrize("name", WITHOUT_HEAD)
def test_a_head_that_the_model_does_not_have(name):
    """Otherwise nothing would be personal, or frozen, or mixed, and the run would be FedAvg under another name."""
    with pytest.raises(ft.ConfigError, match=r"match.* Got (submodule 'head'|nothing)"):
        prepare(WITHOUT_HEAD[name])


def test_a_misspelt_head_of_fedbabu():
    with pytest.raises(
        ft.ConfigError, match=r"head must match some tensors\. Got submodule 'heda', which matches none"
    ):
        prepare(lambda: fl.fedbabu(lr=0.1, steps=1, head=ft.params.submodule("heda")))
    prepare(lambda: fl.fedbabu(lr=0.1, steps=1, head=ft.params.nothing))
