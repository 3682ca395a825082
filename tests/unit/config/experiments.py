"""A small experiment as the tables of its file."""

from __future__ import annotations

import copy
import tomllib
from typing import Any

SMALL = tomllib.loads("""
rounds = 2
cohort = 2
batch_size = 8

[data]
name = "digits"
new_clients = 1
split = { name = "iid", clients = 6 }

[model]
name = "mlp"
inputs = 64
hidden = [4]
outputs = 10

[algorithm]
name = "fedavg"
lr = 0.1
steps = 2

[evaluation]
every = 2
users = 2
""")


BACKBONE = {"name": "fedavg", "lr": 0.1, "steps": 2}


HEAD = {"submodule": "head"}


def experiment(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(SMALL), **changes}
