"""What a local step of every method costs against FedAvg's: `python -m benchmarks --methods`."""

from __future__ import annotations

import importlib.util
import inspect
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

import fedtempo as ft
from benchmarks import report
from benchmarks.ours import federated, rounds
from benchmarks.workloads import FOLDER, WORKLOADS, Workload, arrays
from fedtempo.client.adaptive import clipped_together

FILE = Path(__file__).parent / "results" / "methods.json"
SMALL = replace(WORKLOADS["W1"], clients=20, samples=200, cohort=5)
"""W1's network and batches with few clients, so that a round is short and many rounds can be taken in turn."""
WARM_UP = 3
BATCH_NORM, ADAPTERS = ("fedbn",), ("fedsa_lora", "ffa_lora", "fedex_lora")
LR, K = SMALL.lr, SMALL.steps
SETTINGS: dict[str, dict[str, Any]] = {
    "fedsgd": {"lr": LR},
    "feddecay": {"lr": LR, "beta": 0.9, "steps": K},
    "fedrep": {"lr": LR, "head_steps": K // 2, "body_steps": K // 2},
    "fedrecon": {"lr": LR, "head_lr": LR, "head_steps": K // 2, "body_steps": K // 2},
    "fedrecon_stateful": {"head_lr": LR, "server_lr": LR, "head_steps": K - 1, "full_batch": False},
    "pflego": {"head_lr": LR, "server_lr": LR, "steps": K, "full_batch": False},
    "pfedme": {"lr": 0.005, "personal_lr": LR, "inner_steps": 5, "local_rounds": K // 5},
    "q_fedsgd": {"lr": LR, "full_batch": False},
    "afl": {"lr": LR, "weights_lr": 0.01, "full_batch": False},
    "fednar": {"weight_decay": 0.001, "max_norm": 10.0},
    "clip_then_decay": {"weight_decay": 0.001, "max_norm": 10.0},
    "adaptive_decay": dict(zip(("rate", "decay"), clipped_together(0.001, 10.0), strict=True)),
    "server_decay": {"decay": 0.001},
    "stop_early": {"gradient": 0.0},
    "loss_weighted": {"power": 1.0},
    "fedhyper_client": {"step": 0.001},
}
"""Settings of methods that need more than a rate and a number of steps."""


def method(name: str) -> ft.Algorithm:
    """The method with W1's rate and steps; a wrapper around FedAvg."""
    build: Callable[..., ft.Algorithm] = ft.algorithms.ALGORITHMS[name]
    if "algorithm" in inspect.signature(build).parameters:
        return build(ft.algorithms.fedavg(lr=LR, steps=K), **SETTINGS.get(name, {}))
    return build(**SETTINGS.get(name, {"lr": LR, "steps": K}))


def network(name: str) -> nn.Module:
    """784-200-10 with a body and a head; with BatchNorm or with adapters where the method needs them."""
    plain = ft.models.mlp(784, [200], 10)
    if name in BATCH_NORM:
        return nn.Sequential(nn.Linear(784, 200), nn.BatchNorm1d(200), nn.ReLU(), nn.Linear(200, 10))
    if name not in ADAPTERS:
        return plain
    from peft import LoraConfig, get_peft_model

    adapted: nn.Module = get_peft_model(plain, LoraConfig(target_modules="all-linear", r=8))  # type: ignore[arg-type]
    return adapted


def main(count: int) -> None:
    """Measure every method in turn with FedAvg on the same network, and keep the ratios."""
    inputs, labels = arrays(SMALL, FOLDER)
    data = federated(SMALL, inputs, labels)
    costs: dict[str, dict[str, float]] = {}
    for name in ft.algorithms.ALGORITHMS:
        if name in ADAPTERS and importlib.util.find_spec("peft") is None:
            continue
        costs[name] = against_fedavg(SMALL, data, name, count)
        print(f"{name:18} {costs[name]['median']:.2f}", flush=True)
    workload = f"{SMALL.title.removeprefix('W1: ')}, 784-200-10"
    FILE.write_text(json.dumps({"about": report.about(), "workload": workload, "costs": costs}, indent=1) + "\n")


def against_fedavg(workload: Workload, data: ft.data.FederatedData, name: str, count: int) -> dict[str, float]:
    """Processor time of a round over that of FedAvg with as many steps, round by round: the middle, and quartiles."""
    with ExitStack() as stack:
        mine = _started(workload, data, name, method(name), stack)
        steps = next(mine).costs.steps // workload.cohort
        plain = _started(workload, data, name, ft.algorithms.fedavg(lr=LR, steps=steps), stack)
        times = np.array([[_seconds(plain), _seconds(mine)] for _ in range(WARM_UP + count)])
    low, middle, high = np.quantile(times[WARM_UP:, 1] / times[WARM_UP:, 0], [0.25, 0.5, 0.75])
    return {"median": float(middle), "lower_quartile": float(low), "upper_quartile": float(high), "steps": steps}


def _started(
    workload: Workload, data: ft.data.FederatedData, name: str, algorithm: ft.Algorithm, stack: ExitStack
) -> Iterator[ft.RoundReport]:
    running = rounds(workload, data, algorithm, model=network(name), workers=1, backend="serial")
    stack.callback(running.close)  # type: ignore[attr-defined]
    return running


def _seconds(running: Iterator[ft.RoundReport]) -> float:
    """Of the processor, so that other processes on the machine count little."""
    before = time.process_time()
    next(running)
    return time.process_time() - before
