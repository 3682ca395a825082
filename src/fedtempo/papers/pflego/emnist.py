"""The PFLEGO paper: Table 1 on EMNIST."""

from __future__ import annotations

from typing import Any

from fedtempo.papers.framework.definitions import sized
from fedtempo.papers.pflego.degrees import MEDIUM_MLP, PAPER_MLP, PREFIXES, SMALL_MLP, SMALLER, SMOKE, degrees_table
from fedtempo.papers.pflego.setting import CONVERGED, pflego_tuning

LETTERS: dict[str, Any] = {"degrees": {"high": 2, "medium": 31, "none": 62}, "own_classes": False}
EMNIST = degrees_table(
    "pflego-emnist",
    "EMNIST (FEMNIST's characters at smaller scales), three degrees of personalization",
    {
        "smoke": sized(
            seeds=1,
            minutes=0.1,
            **SMOKE,
            **LETTERS,
            data="femnist",
            rows=600,
            model=("mlp", {"hidden": [8], "outputs": 62}),
        ),
        "small": sized(
            seeds=3,
            minutes=2.5,
            **SMALL_MLP,
            **LETTERS,
            data="femnist",
            rows=6_000,
            test=0.5,
            model=("mlp", {"outputs": 62}),
        ),
        "medium": sized(
            seeds=5,
            minutes=60,
            tuning=pflego_tuning(*PREFIXES),
            settling=CONVERGED,
            **MEDIUM_MLP,
            **LETTERS,
            data="femnist",
            rows=12_000,
            model=("mlp", {"hidden": [64], "outputs": 62}),
        ),
        "paper": sized(
            seeds=1,
            minutes=1200,
            **PAPER_MLP,
            **LETTERS,
            data="emnist",
            rows=None,
            test=None,
            model=("mlp", {"outputs": 62}),
        ),
    },
    {"high": (98.49, 97.78, 97.29), "medium": (74.43, 74.19, 68.82), "none": (55.42, 48.12, 69.40)},
    SMALLER,
    "Smoke and small use the characters of LEAF's FEMNIST sample, the same 62 classes from the same source, without "
    "their writers. The paper's scale needs EMNIST itself (`fedtempo data get emnist`).",
    "Heads have 62 outputs, also where a client has fewer classes: rare characters may be in its test rows only.",
    looks=2,
)
