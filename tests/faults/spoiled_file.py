"""A small experiment file to spoil, one value at a time."""

from __future__ import annotations

import copy
import tomllib
from typing import Any

import pytest

import fedtempo as ft
from fedtempo.config import parse, settings_of

SMALL = tomllib.loads("""
rounds = 2

[data]
name = "digits"
split = { name = "iid", clients = 6 }

[model]
name = "mlp"
inputs = 64
hidden = [4]
outputs = 10

[algorithm]
name = "feddecay"
lr = 0.1
beta = 0.6
steps = 2

[evaluation]
every = 1
""")
MISSING = object()


def changed(path: str, value: Any) -> dict[str, Any]:
    """The small experiment with one value changed or taken away."""
    values = copy.deepcopy(SMALL)
    here = values
    *parents, last = path.split(".")
    for parent in parents:
        here = here.setdefault(parent, {})
    if value is MISSING:
        here.pop(last, None)
    else:
        here[last] = value
    return values


def refusal(values: dict[str, Any]) -> str:
    with pytest.raises(ft.ConfigError) as caught:
        settings_of(parse(values))
    message = str(caught.value)
    assert "\n" not in message
    return message
