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
from typing import Any, NamedTuple

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
LR, K, MORE = SMALL.lr, SMALL.steps, 4 * SMALL.steps
"""W1's steps, and so many more of them that what a round costs once can be told from what each step costs."""


def settings(name: str, steps: int) -> dict[str, Any]:
    """What the method needs besides an algorithm to go around."""
    own: dict[str, dict[str, Any]] = {
        "fedsgd": {"lr": LR},
        "feddecay": {"lr": LR, "beta": 0.9, "steps": steps},
        "fedrep": {"lr": LR, "head_steps": steps // 2, "body_steps": steps // 2},
        "fedrecon": {"lr": LR, "head_lr": LR, "head_steps": steps // 2, "body_steps": steps // 2},
        "fedrecon_stateful": {"head_lr": LR, "server_lr": LR, "head_steps": steps - 1, "full_batch": False},
        "pflego": {"head_lr": LR, "server_lr": LR, "steps": steps, "full_batch": False},
        "pfedme": {"lr": 0.005, "personal_lr": LR, "inner_steps": 5, "local_rounds": steps // 5},
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
    return own.get(name, {} if is_wrapper(name) else {"lr": LR, "steps": steps})


def is_wrapper(name: str) -> bool:
    """Whether the method goes around another."""
    return "algorithm" in inspect.signature(ft.algorithms.ALGORITHMS[name]).parameters


def method(name: str, steps: int = K) -> ft.Algorithm:
    """The method with W1's rate; a wrapper around FedAvg."""
    build: Callable[..., ft.Algorithm] = ft.algorithms.ALGORITHMS[name]
    around = (ft.algorithms.fedavg(lr=LR, steps=steps),) if is_wrapper(name) else ()
    return build(*around, **settings(name, steps))


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
        besides = (
            f"  a step {costs[name]['step']:.2f}, besides {costs[name]['once']:.1f}" if "step" in costs[name] else ""
        )
        print(f"{name:18} {costs[name]['median']:.2f}{besides}", flush=True)
    workload = f"{SMALL.title.removeprefix('W1: ')}, 784-200-10"
    FILE.write_text(json.dumps({"about": report.about(), "workload": workload, "costs": costs}, indent=1) + "\n")


def against_fedavg(workload: Workload, data: ft.data.FederatedData, name: str, count: int) -> dict[str, float]:
    """Processor time of a round over that of FedAvg with as many steps, round by round: the middle, and quartiles.

    Where the method has a number of steps: what a step of it costs over FedAvg's (`step`), and what a client's round
    costs besides, in steps of FedAvg's (`once`). Both come from rounds of `K` and of `MORE` steps.
    """
    with ExitStack() as stack:
        contenders = [_pair(workload, data, name, K, stack)]
        if name == "fedavg" or settings(name, K) != settings(name, MORE) or is_wrapper(name):
            contenders.append(_pair(workload, data, name, MORE, stack))
        rounds_taken = [
            [[_seconds(one) for one in pair.running] for pair in contenders] for _ in range(WARM_UP + count)
        ]
    times = np.array(rounds_taken)[WARM_UP:]
    low, middle, high = np.quantile(times[:, 0, 1] / times[:, 0, 0], [0.25, 0.5, 0.75])
    found = {"median": float(middle), "lower_quartile": float(low), "upper_quartile": float(high)}
    found["steps"] = contenders[0].steps
    if len(contenders) == 1:
        return found
    typical = np.median(times, axis=0)
    plain, mine = (typical[1] - typical[0]) / (contenders[1].steps - contenders[0].steps)
    besides = (typical[0, 1] - typical[0, 0]) - found["steps"] * (mine - plain)
    return {**found, "step": float(mine / plain), "once": float(besides / plain)}


class _Pair(NamedTuple):
    """FedAvg and the method, with the same number of steps."""

    running: tuple[Iterator[ft.RoundReport], Iterator[ft.RoundReport]]
    steps: int


def _pair(workload: Workload, data: ft.data.FederatedData, name: str, steps: int, stack: ExitStack) -> _Pair:
    mine = _started(workload, data, name, method(name, steps), stack)
    taken = next(mine).costs.steps // workload.cohort
    plain = _started(workload, data, name, ft.algorithms.fedavg(lr=LR, steps=taken), stack)
    return _Pair((plain, mine), taken)


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
