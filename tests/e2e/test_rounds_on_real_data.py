"""One federated round on every data set with its paper's model, on a few clients, serial and vectorised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedtempo as ft
from fedtempo import algorithms as a
from fedtempo.contracts import distance
from fedtempo.data import classes_per_client, dirichlet, louvain, natural
from tests.slow import slow_but

PLAIN = a.fedavg(lr=0.01, steps=1)


@dataclass(frozen=True)
class Recipe:
    """A data set, how it is split, and the paper's model for it."""

    data: str
    split: ft.data.Split
    model: Callable[[Path], nn.Module]
    settings: dict[str, Any] = field(default_factory=dict)
    division: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    algorithm: ft.Algorithm = PLAIN


RECIPES = {
    "mnist by writer": Recipe(
        "mnist", natural(5), lambda _: ft.models.mlp(), division={"validation": 0.0, "test": 0.2}
    ),
    "mnist, two classes": Recipe("mnist", classes_per_client(100, 2), lambda _: ft.models.mlp()),
    "fashion_mnist": Recipe("fashion_mnist", classes_per_client(100, 5), lambda _: ft.models.mlp()),
    "omniglot": Recipe(
        "omniglot",
        natural(),
        lambda _: ft.models.omniglot_cnn(),
        division={"relabel": True},
        algorithm=a.pflego(head_lr=0.007, server_lr=0.003, steps=3, full_batch=False),
    ),
    "cifar10 resnet": Recipe(
        "cifar10", dirichlet(100, 0.3, equal=True), lambda _: ft.models.resnet18(), run={"batch_size": 2}
    ),
    "cifar10 pflego": Recipe("cifar10", classes_per_client(50, 2), lambda _: ft.models.cifar_cnn()),
    "femnist 5x5": Recipe("femnist", natural(5), lambda _: ft.models.convnet2()),
    "femnist 3x3": Recipe("femnist", natural(5), lambda _: ft.models.femnist_cnn()),
    "shakespeare gru": Recipe("shakespeare", natural(4), lambda _: ft.models.character_gru()),
    "shakespeare transformer": Recipe("shakespeare", natural(4), lambda _: ft.models.character_transformer()),
    "stackoverflow": Recipe(
        "stackoverflow",
        natural(4),
        lambda _: ft.models.logistic_regression(),
        division={"validation": 0.0, "test": 0.2},
    ),
    "sst2": Recipe("sst2", dirichlet(50, 0.4), lambda d: ft.models.bert_tiny(str(d / "bert_tiny"), pretrained=False)),
    "pubmed": Recipe("pubmed", louvain(5), lambda _: ft.models.gin(500, 3), division={"validation": 0.1, "test": 0.1}),
    "cora": Recipe("cora", louvain(5), lambda _: ft.models.gin(1433, 7), division={"validation": 0.1, "test": 0.1}),
    "citeseer": Recipe(
        "citeseer", louvain(5), lambda _: ft.models.gin(3703, 6), division={"validation": 0.1, "test": 0.1}
    ),
}
FULL_BATCH = {"pubmed", "cora", "citeseer"}


def run(recipe: Recipe, folder: Path, data: ft.data.FederatedData, **settings: Any) -> ft.Result:
    torch.manual_seed(0)
    defaults = {"rounds": 1, "cohort": 2, "batch_size": 4, "seed": 1, "evaluation": None, "dtype": torch.float64}
    return ft.run(
        model=recipe.model(folder), data=data, algorithm=recipe.algorithm, **{**defaults, **recipe.run, **settings}
    )


EVERY_TIME = ["mnist by writer", "mnist, two classes", "cora"]


@pytest.mark.parametrize("name", slow_but(EVERY_TIME, RECIPES, "decodes a whole data set, or trains a large network"))
def test_one_round(name: str, real_data: Path, decoded: Path) -> None:
    recipe = RECIPES[name]
    table = ft.data.load(recipe.data, data_dir=real_data, cache_dir=decoded, **recipe.settings)
    data = table.split(recipe.split, seed=0, **recipe.division)
    settings = {"batch_size": None} if name in FULL_BATCH else {}
    one = run(recipe, real_data, data, backend="serial", **settings)
    assert np.isfinite(one.history[0].loss)
    assert one.history[0].costs.steps >= 2
    many = run(recipe, real_data, data, backend="vectorised", **settings)
    assert distance(one, many) <= 1e-12
    moved = [n for n, p in one.params.items() if not torch.equal(p, one.experiment.first_shared[n])]
    assert moved


def test_users_of_a_graph_are_scored(real_data: Path, decoded: Path) -> None:
    table = ft.data.load("cora", data_dir=real_data, cache_dir=decoded)
    data = table.split(louvain(5), validation=0.1, test=0.1, new_clients=1, seed=0)
    result = ft.run(
        model=ft.models.gin(1433, 7),
        data=data,
        algorithm=a.feddecay(lr=0.5, beta=0.4, steps=3),
        rounds=3,
        batch_size=None,
    )
    scores = result.scores.summary()
    assert 0 < scores["existing_after"]["accuracy"]["mean"] <= 1
    assert 0 < scores["new_after"]["accuracy"]["mean"] <= 1


def test_synthetic_data_need_no_files() -> None:
    data = ft.data.load("synthetic").split(natural(), seed=0)
    width = data.columns["x"].shape[1]
    result = ft.run(
        model=ft.models.softmax_regression(width, 10),
        data=data,
        algorithm=a.fedavg(lr=0.01, steps=2),
        rounds=2,
        cohort=5,
    )
    assert result.history[-1].loss > 0
