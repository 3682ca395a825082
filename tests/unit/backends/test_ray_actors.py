"""Ray without a cluster: settings and the missing extra. With one: tests/e2e/ray."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import fedtempo as ft
from tests import zoo
from tests.programs import script_ended

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: fedtempo[ray]")


def run(kind: str = "mlp", name: str = "fedavg", **settings: Any) -> ft.Result:
    usual = {"rounds": 3, "cohort": 5, "batch_size": 4, "seed": 3, "block": 1, "evaluation": None}
    return ft.run(model=zoo.model(kind), data=zoo.data(kind), algorithm=zoo.ALGORITHMS[name], **{**usual, **settings})


@needs_ray
def test_settings_of_ray_are_checked() -> None:
    for settings, message in (
        ({"ray_gpus": 1}, "ray_gpus must be left out unless the backend is 'ray'"),
        ({"backend": "ray", "ray_gpus": 1.5}, "ray_gpus must be a share"),
        ({"backend": "ray", "ray_address": ""}, "ray_address must be an address"),
        ({"backend": "ray", "ray_loader": 3}, "ray_loader must be a function"),
    ):
        with pytest.raises(ft.ConfigError, match=message):
            run(**settings)


def test_a_missing_extra_is_said(tmp_path: Path) -> None:
    (tmp_path / "without.py").write_text(
        "import sys\nsys.modules['ray'] = None\nfrom fedtempo.backends import cluster_for\n"
        "cluster_for('ray', None, None, None)\n"
    )
    done = script_ended(tmp_path / "without.py", directory=tmp_path)
    assert "ConfigError: backend 'ray' must have Ray installed: pip install '.[ray]'" in done.stderr
