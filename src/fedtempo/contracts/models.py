"""What every model must keep: the same numbers however clients run, nothing from padding, nothing left behind.

>>> from fedtempo.models import mlp
>>> check_model(mlp(6, [5], 4))
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from fedtempo.algorithms.fedavg import fedavg
from fedtempo.client.network import inputs_of
from fedtempo.contracts.algorithms import TOLERANCE, ContractError, distance, small_data
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.params import Params
from fedtempo.training.checks.vectorises import why_not_vectorised
from fedtempo.training.result import Result
from fedtempo.training.run import run

SERIAL: dict[str, Any] = {"backend": "serial"}
WAYS: dict[str, dict[str, Any]] = {
    "side by side": {"backend": "vectorised", "block": 3},
    "in processes": {"backend": "serial", "workers": 2, "block": 2},
}
ALONE = 1e-9
"""How near a row's output beside other rows must be to its output by itself, relative to the largest."""


def check_model(model: nn.Module | Callable[[], nn.Module], **settings: Any) -> None:
    """Raise `ContractError` unless the model trains to the same numbers on every backend, and can be taken away.

    It is trained for two rounds on small data of six numbers a row and four classes. `settings` replace those of the
    small run, such as `data=`, `loss=` and `algorithm=` of your own. A model that `vmap` cannot run is not tried side
    by side, because `backend="auto"` does not either.
    """
    given = _tensors(model)
    first = _run(model, {**settings, **SERIAL})
    _require(_run(model, {**settings, **SERIAL}).digest() == first.digest(), model, "gives the same bits again")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(123)
        other = _run(model, {**settings, **SERIAL})
    _require(other.digest() == first.digest(), model, "ignores the global generator")
    for way, how in WAYS.items():
        if how["backend"] == "serial" or _vectorises(model, settings):
            gap = distance(first, _run(model, {**settings, **how}))
            _require(gap <= TOLERANCE, model, f"is the same {way} (differs by {gap:.1e})")
    _check_padding(first, model)
    _check_taken_away(first, model)
    kept = all(torch.equal(tensor, given[name]) for name, tensor in _tensors(model).items())
    _require(kept, model, "is not changed by a run: what it learned is in the result")


def _run(model: nn.Module | Callable[[], nn.Module], settings: dict[str, Any]) -> Result:
    defaults = {
        "data": small_data(),
        "algorithm": fedavg(lr=0.05, epochs=1),
        "rounds": 2,
        "cohort": 4,
        "batch_size": 4,
        "seed": 7,
        "dtype": torch.float64,
        "evaluation": Evaluation(steps=1),
        "progress": False,
    }
    return run(model=model, **{**defaults, **settings})


def _vectorises(model: nn.Module | Callable[[], nn.Module], settings: dict[str, Any]) -> bool:
    """Whether `auto` would run it side by side if it is small."""
    experiment = _run(model, {**settings, **SERIAL, "rounds": 1}).experiment
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return why_not_vectorised(experiment.federation, experiment.first_shared) is None


def _check_padding(result: Result, model: object) -> None:
    """If rows count as independent, batches are padded; so a row's output must not depend on its neighbours."""
    federation = result.experiment.federation
    if not federation.problem.pads_batches:
        return
    rows = federation.problem.client_rows(int(np.argmax(federation.problem.sizes)))
    params = result.served("last")
    together = federation.problem.network.forward(params, rows)
    for count in range(1, len(together)):
        some = federation.problem.network.forward(params, {name: t[:count] for name, t in rows.items()})
        gap = float((some - together[:count]).abs().max()) / max(float(together.abs().max()), 1e-300)
        _require(gap <= ALONE, model, f"gives a row the same output beside others (differs by {gap:.1e})")


def _check_taken_away(result: Result, model: object) -> None:
    """The state dict of the result, loaded into the module, predicts what the result predicts."""
    federation = result.experiment.federation
    if federation.personal_names or federation.algorithm.components is not None:
        return
    module = copy.deepcopy(federation.problem.model)
    if type(module).load_state_dict is not nn.Module.load_state_dict:
        return  # how it is stored is its own affair
    # A buffer that a state dict leaves out is not looked for in it; where it matters, the outputs below say so.
    unstored = {name for name, _ in module.named_buffers()} - set(module.state_dict())
    stored = {name: tensor for name, tensor in result.params.items() if name not in unstored}
    missing, unknown = module.load_state_dict(stored, strict=False)
    left = set(missing) & {name for name, _ in module.named_parameters()}
    _require(not left and not unknown, model, f"takes a result's state dict (not {sorted({*left, *unknown})})")
    rows = federation.problem.client_rows(0)
    inputs = inputs_of(rows)
    with torch.no_grad():
        module.eval()
        outputs = module(*inputs.values()) if len(inputs) == 1 else module(**inputs)
        ours = federation.problem.network.forward(_plain(result.params), rows)
    if isinstance(outputs, torch.Tensor):
        close = torch.allclose(outputs, ours, rtol=ALONE, atol=ALONE)
        _require(close, model, "predicts the same with the state dict loaded")


def _tensors(model: object) -> Params:
    """The tensors of a module as they are now; none of a function that makes one."""
    if not isinstance(model, nn.Module):
        return {}
    return {n: t.detach().clone() for n, t in (*model.named_parameters(), *model.named_buffers())}


def _plain(params: Params) -> Params:
    return {name: tensor.clone() for name, tensor in params.items()}


def _require(holds: bool, what: object, promise: str) -> None:
    if not holds:
        name = getattr(what, "__name__", type(what).__name__)
        raise ContractError(f"the model {name} must keep its promise: it {promise}.")
