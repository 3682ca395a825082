"""What this machine computes with, and whether every backend computes the same here.

`examine` is what `fedtempo doctor` prints: versions, processors, threads, the libraries of linear algebra, how workers
are started, accelerators; then one short run on each backend, with its time and its digest.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch

from fedtempo.algorithms import scaffold
from fedtempo.backends.start import FORCED, SENDS, start_method, why_not_fork
from fedtempo.contracts.algorithms import TOLERANCE, distance, small_data
from fedtempo.errors import first_line
from fedtempo.models.mlp import mlp
from fedtempo.support.kind import in_words, kind_here
from fedtempo.support.threads import usable_processors
from fedtempo.training.result import Result
from fedtempo.training.run import run

PACKAGES = ("fedtempo", "torch", "numpy", SENDS, "ray", "flwr")
ACCELERATORS = ("cuda", "xpu", "mps")
ON_ACCELERATOR = 1e-3
"""How far a short run in float32 on an accelerator may be from the processor's."""
MATRIX, PRODUCTS = 384, 20


class BackendTrial(NamedTuple):
    """One short run."""

    name: str
    seconds: float | None
    """None where nothing was run."""
    digest: str
    verdict: str
    sound: bool = True
    """Whether it gave what it has to give. A backend that is not to be had here is no fault."""


@dataclass(frozen=True)
class Examination:
    """What was found."""

    facts: dict[str, str]
    trials: tuple[BackendTrial, ...]

    @property
    def sound(self) -> bool:
        """Whether every backend that is to be had here gives what it has to give."""
        return all(trial.sound for trial in self.trials)


def examine(ray: bool = True) -> Examination:
    """Look at this machine and try every backend on a run of a second; Ray only if asked, for it starts slowly."""
    return Examination(machine_facts(), tuple(_trials(ray)))


def machine_facts() -> dict[str, str]:
    """What the numbers and their speed depend on, in words."""
    usable = usable_processors()
    set_by = [f"{name}={os.environ[name]}" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if name in os.environ]
    no_fork = why_not_fork()
    return {
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "python": platform.python_version(),
        **{name: found for name in PACKAGES if (found := _version(name)) is not None},
        "processors": f"{usable} usable of {os.cpu_count()}",
        "threads": f"{torch.get_num_threads()} in torch{''.join(f', {one}' for one in set_by)}; runs use one a process",
        "linear algebra": f"torch {_torch_libraries()}, numpy {_numpy_library()}",
        "matrix products": f"{_speed():.1f} GFLOP/s on one thread (float32, {MATRIX} x {MATRIX})",
        "workers are": f"{start_method() or 'not to be had'}{f' ({no_fork})' if no_fork else ''}",
        "same bits on": in_words(kind_here()),
        "accelerators": ", ".join(_accelerators()) or "none",
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _torch_libraries() -> str:
    found = {"MKL": torch.backends.mkl, "oneDNN": torch.backends.mkldnn, "OpenMP": torch.backends.openmp}
    capability = torch.backends.cpu.get_cpu_capability()
    return " ".join([*(name for name, library in found.items() if library.is_available()), f"({capability})"])


def _numpy_library() -> str:
    try:
        config: Any = np.show_config(mode="dicts")
        return str(config["Build Dependencies"]["blas"]["name"])
    except (TypeError, KeyError):
        return "of unknown make"


def _speed() -> float:
    """The best of some products: a machine that does something else at the moment is not slower for it."""
    threads, best = torch.get_num_threads(), float("inf")
    torch.set_num_threads(1)
    try:
        matrix = torch.ones(MATRIX, MATRIX)
        for _ in range(PRODUCTS):
            started = time.perf_counter()
            matrix @ matrix
            best = min(best, time.perf_counter() - started)
    finally:
        torch.set_num_threads(threads)
    return 2 * MATRIX**3 / best / 1e9


def _accelerators() -> list[str]:
    """The accelerators that torch can use here, by name."""
    found = []
    for name in ACCELERATORS:
        module = getattr(torch, name, None) if name != "mps" else torch.backends.mps
        if module is not None and module.is_available():
            count = module.device_count() if hasattr(module, "device_count") else 1
            found += [name if count == 1 else f"{name} ({count})"]
    return found


# ---------------------------------------------------------------------- one short run on each backend


def _short_run(dtype: torch.dtype = torch.float64, **settings: Any) -> Result:
    return run(
        model=mlp(6, [5], 4),
        data=small_data(),
        algorithm=scaffold(lr=0.1, steps=5),
        rounds=3,
        cohort=4,
        batch_size=4,
        seed=7,
        dtype=dtype,
        block=2,
        evaluation=None,
        progress=False,
        **settings,
    )


def _trials(ray: bool) -> Iterator[BackendTrial]:
    reference, seconds = _timed(lambda: _short_run(backend="serial"))
    yield BackendTrial("serial", seconds, reference.digest(), "the reference")

    def same_bits(result: Result) -> str | None:
        return "same bits" if result.digest() == reference.digest() else None

    def close(result: Result) -> str | None:
        gap = distance(reference, result)
        return f"within {gap:.0e}" if gap <= TOLERANCE else None

    yield _tried("vectorised", lambda: _short_run(backend="vectorised"), close)
    forked, spawned = why_not_fork(), None if find_spec(SENDS) else f"needs {SENDS}"
    for method, obstacle in (("fork", forked), ("spawn", spawned)):
        name = f"processes, {method}"
        if obstacle:
            yield BackendTrial(name, None, "", f"not here: {obstacle}")
            continue
        with _start_method(method):
            yield _tried(name, lambda: _short_run(backend="processes", workers=2), same_bits)
    if ray and find_spec("ray"):
        yield _tried("ray", lambda: _short_run(backend="ray", workers=2, ray_address="local"), same_bits)
    else:
        yield BackendTrial("ray", None, "", "not asked for" if find_spec("ray") else "not here: it is not installed")
    yield from _accelerator_trials()


def _accelerator_trials() -> Iterator[BackendTrial]:
    """The last ones: once an accelerator is in use, nothing is forked any more."""
    names = [name.split(" ")[0] for name in _accelerators()]
    if not names:
        return
    reference = _short_run(torch.float32, backend="serial")

    def near(result: Result) -> str | None:
        gap = distance(reference, result)
        return f"within {gap:.0e} in float32" if gap <= ON_ACCELERATOR else None

    for device in names:
        for backend in ("serial", "vectorised"):
            settings = {"backend": backend, "device": device}
            yield _tried(f"{backend} on {device}", lambda given=settings: _short_run(torch.float32, **given), near)  # type: ignore[misc]


def _tried(name: str, work: Callable[[], Result], judge: Callable[[Result], str | None]) -> BackendTrial:
    try:
        result, seconds = _timed(work)
    except Exception as error:  # whatever is wrong with a machine is what is asked for
        return BackendTrial(name, None, "", f"failed: {type(error).__name__}: {first_line(error)}", sound=False)
    verdict = judge(result)
    return BackendTrial(name, seconds, result.digest(), verdict or "differs from the reference", verdict is not None)


def _timed(work: Callable[[], Result]) -> tuple[Result, float]:
    started = time.perf_counter()
    result = work()
    return result, time.perf_counter() - started


@contextmanager
def _start_method(method: str) -> Iterator[None]:
    """Start workers in this way while in here."""
    before = os.environ.get(FORCED)
    os.environ[FORCED] = method
    try:
        yield
    finally:
        if before is None:
            del os.environ[FORCED]
        else:
            os.environ[FORCED] = before
