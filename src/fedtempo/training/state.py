"""Everything that changes from round to round, besides the clients' personal state; and its form on disk."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.numpy import save
from safetensors.torch import load
from safetensors.torch import save as save_torch
from torch import Tensor

from fedtempo.errors import StoreError
from fedtempo.federation.costs import Costs
from fedtempo.params import Params, bits_of, leaves
from fedtempo.server.noise import Secret
from fedtempo.training.asynchronous.flights import Flights, flights_from_plain, flights_to_plain
from fedtempo.training.round_report import RoundReport, costs_of, is_real, require_form

SMOOTHING = 0.9
"""The share of the earlier rounds in the smoothed training loss."""
PATIENCE = 10
"""Rounds without a new best that make a plateau."""
IMPROVEMENT = 0.01
"""The share by which the smoothed loss has to fall to be a new best."""


class Progress(NamedTuple):
    """What adaptive schedules follow: the smoothed training loss, its first and best values, its plateaus so far."""

    first: float = math.nan
    smoothed: float = math.nan
    best: float = math.inf
    rounds_since_best: int = 0
    plateaus: int = 0

    def after(self, loss: float) -> Progress:
        """Progress after a round with this training loss; a round without one changes nothing."""
        if not math.isfinite(loss):
            return self
        if math.isnan(self.first):
            return Progress(loss, loss, loss)
        smoothed = SMOOTHING * self.smoothed + (1 - SMOOTHING) * loss
        # A loss may be negative, such as the log-likelihood of a density.
        if smoothed < self.best - IMPROVEMENT * abs(self.best):
            return self._replace(smoothed=smoothed, best=smoothed, rounds_since_best=0)
        waited = self.rounds_since_best + 1
        if waited < PATIENCE:
            return self._replace(smoothed=smoothed, rounds_since_best=waited)
        return self._replace(smoothed=smoothed, best=smoothed, rounds_since_best=0, plateaus=self.plateaus + 1)

    def after_rounds(self, reports: Iterable[RoundReport]) -> Progress:
        """Progress after these rounds; those that were abandoned change nothing."""
        return reduce(Progress.after, (report.loss for report in reports if not report.abandoned), self)

    @property
    def ratio(self) -> float:
        """Smoothed loss over its first value; 1 before the first round."""
        return self.smoothed / self.first if self.first > 0 else 1.0


class State(NamedTuple):
    """The shared model, the server's state, and the numbers that a run carries from round to round."""

    shared: Params
    server: Any
    progress: Progress = Progress()
    costs: Costs = Costs()
    best_validation: float = float("-inf")
    norms: tuple[float, ...] = ()
    """Median norms of accepted displacements of the latest rounds, where admission looks at them."""
    secret: Secret | None = None
    """The key of a private run's noise and cohorts. The server's store keeps it; nothing else may."""
    releases: int = 0
    """Private means that somebody may have seen so far."""
    time: float = 0.0
    """Seconds of the clock so far: of devices in a simulation, measured in a deployment."""
    energy: float = 0.0
    """Joules that the devices have used so far."""
    flights: Flights | None = None
    """Clients at work, in an asynchronous run."""


class AfterRound(NamedTuple):
    """What a round leads to; the loop scores it and commits it."""

    state: State
    kept: dict[int, Params]
    """What each client of the round keeps from now on."""
    report: RoundReport


KeptBy = Callable[[np.ndarray], Sequence[Params]]
"""(clients) -> what each of them keeps; nothing where no schedule looks at it."""


def keeps_unread(clients: np.ndarray) -> Sequence[Params]:
    """The usual `KeptBy`: no schedule looks at what clients keep, so it is not read."""
    return ()


def tensors_to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as safetensors: names, types, shapes and numbers, and nothing that could run.

    safetensors sorts by name. A number before each name keeps our order: norms are summed in that order, and a resumed
    run must sum in the order of the uninterrupted one.
    """
    numbered = {f"{index:06d} {name}": t.detach().cpu().contiguous() for index, (name, t) in enumerate(tensors.items())}
    if any(t.dtype == torch.bfloat16 for t in numbered.values()):  # numpy has no such type, and torch's wants copies
        return bytes(save_torch({name: t.clone() for name, t in numbered.items()}))
    return bytes(save({name: t.numpy() for name, t in numbered.items()}))


def tensors_from_bytes(data: bytes) -> Params:
    """The inverse of `tensors_to_bytes`."""
    try:
        return {name.partition(" ")[2]: tensor.clone() for name, tensor in sorted(load(data).items())}
    except Exception as error:
        raise StoreError(f"stored tensors must be safetensors: {type(error).__name__}: {error}") from None


def absorb(state: hashlib._Hash, name: str, tree: object) -> None:
    """Add a tree's tensors to a hash, in the order of their names, each with its name, type and shape."""
    if isinstance(tree, Mapping):
        for key in sorted(tree):
            absorb(state, f"{name}/{key}", tree[key])
    elif isinstance(tree, (tuple, list)):
        for index, part in enumerate(tree):
            absorb(state, f"{name}/{index}", part)
    elif isinstance(tree, Tensor):
        state.update(f"{name} {tree.dtype} {tuple(tree.shape)}\n".encode())
        state.update(bits_of(tree).tobytes())


RECEIPT = "sha256"
"""The name of the only entry of a receipt."""


def digest_of(tensors: Params) -> bytes:
    """The SHA-256 of personal tensors: names, types, shapes and numbers. A receipt stands for its tensors."""
    if set(tensors) == {RECEIPT}:
        return tensors[RECEIPT].numpy().tobytes()
    state = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        absorb(state, name, tensor)
    return state.digest()


def receipt(digest: bytes) -> Params:
    """A placeholder for the personal tensors of a client on another machine: their hash."""
    return {RECEIPT: torch.frombuffer(bytearray(digest), dtype=torch.uint8)}


def state_to_bytes(state: State) -> tuple[bytes, str]:
    """Tensors of the shared model and of the server, and the numbers beside them as JSON."""
    numbers = {
        "progress": state.progress._asdict(),
        "costs": asdict(state.costs),
        "best_validation": state.best_validation,
        "norms": state.norms,
        "time": state.time,
        "energy": state.energy,
    }
    if state.secret is not None:
        numbers |= {"secret": state.secret.key.hex(), "releases": state.releases}
    tensors = {**leaves(state.shared, "shared"), **leaves(state.server, "server")}
    if state.flights is not None:
        numbers["flights"], models = flights_to_plain(state.flights)
        tensors |= models
    return tensors_to_bytes(tensors), json.dumps(numbers)


def state_from_bytes(data: bytes, numbers: str, template: State) -> State:
    """The state again, in the form of `template`: the state that the same run starts with."""
    # Stored bytes decide numbers only. Names, shapes and types come from the template and are compared with it.
    tensors, values = tensors_from_bytes(data), json.loads(numbers)
    return State(
        _rebuilt(template.shared, tensors, "shared"),
        _rebuilt(template.server, tensors, "server"),
        Progress(*map(_number, Progress(**values["progress"]))),
        costs_of(values["costs"]),
        _number(values["best_validation"]),
        tuple(map(_number, values["norms"])),
        _secret(values, template.secret),
        int(values.get("releases", 0)),
        _number(values.get("time", 0.0)),
        _number(values.get("energy", 0.0)),
        _flights(values, tensors, template.shared),
    )


def _number(value: Any) -> Any:
    require_form(is_real(value), "a number")
    return value


def _flights(values: Mapping[str, Any], tensors: Params, shared: Params) -> Flights | None:
    """The clients at work; every version has the form of the shared model."""
    if "flights" not in values:
        return None
    numbers = values["flights"]
    models = {int(version): _rebuilt(shared, tensors, f"version {version}") for version in numbers["versions"]}
    return flights_from_plain(numbers, models)


def _secret(values: Mapping[str, Any], template: Secret | None) -> Secret | None:
    """The stored key of a private run. With another key, the resumed run would draw other noise and other cohorts."""
    if template is None:
        return None
    if "secret" not in values:
        raise StoreError("stored state must hold the key of its private mean. It does not.")
    return replace(template, key=bytes.fromhex(values["secret"]))


def _rebuilt(template: Any, tensors: Params, path: str) -> Any:
    if isinstance(template, Tensor):
        if path not in tensors:
            raise StoreError(f"stored state must hold {path!r}. It does not.")
        if tensors[path].shape != template.shape or tensors[path].dtype != template.dtype:
            stored = f"{tensors[path].dtype} {tuple(tensors[path].shape)}"
            raise StoreError(f"stored {path!r} must be {template.dtype} {tuple(template.shape)}. Got {stored}.")
        return tensors[path].to(template.device)
    if isinstance(template, dict):
        return {key: _rebuilt(part, tensors, f"{path}/{key}") for key, part in template.items()}
    parts = [_rebuilt(part, tensors, f"{path}/{index}") for index, part in enumerate(template)]
    if isinstance(template, list):
        return parts
    return type(template)(*parts) if hasattr(template, "_fields") else tuple(parts)  # a NamedTuple has its names
