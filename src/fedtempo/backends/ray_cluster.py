"""A connection to Ray: the caller's own, a cluster that is there already, or one that we start and stop.

Our own cluster listens on the loopback interface alone, has no dashboard, sends no usage statistics, and keeps its
files in a temporary folder that goes when it stops.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import importlib.util
import logging
import os
import shutil
import signal
import socket
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from fedtempo.data.federated import FederatedData
from fedtempo.errors import ConfigError, TrainingError, WorkersLostError, first_line, is_number, require
from fedtempo.support.extras import install

LOCAL = "local"
LOOPBACK = "127.0.0.1"
STOP_WITHIN_SECONDS = 30.0
ANSWERS_WITHIN_SECONDS = 10.0
"""Ray itself would go on trying for minutes."""
NAMESPACE = "fedtempo"
LONGEST_FOLDER = 40
"""Characters: Ray's sockets lie in the temporary folder, and the path of a socket is limited to 107."""
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_worker_niceness": "0",
}
"""In this order: no usage statistics; no advice about later versions; no network but loopback, whatever the variable's
name says; workers at this program's own priority. Ray starts its workers at priority 15, and on a busy machine such a
worker takes minutes to start."""


class Cluster(NamedTuple):
    """Where actors run and what they are given."""

    address: str | None = None
    """None takes `RAY_ADDRESS`. If that is not set either, or the address is "local", we start a cluster."""
    gpus: float | None = None
    """The share of a GPU for each actor; None gives even shares if the device is a GPU, and no GPU otherwise."""
    loader: Callable[[], FederatedData] | None = None
    """A function by which an actor loads the data itself; None sends them from the driver."""


def cluster_for(
    backend: object, address: str | None, gpus: float | None, loader: Callable[[], FederatedData] | None
) -> Cluster | None:
    """The cluster that the backend's name or an address asks for; None if neither asks for Ray."""
    require(address is None or (isinstance(address, str) and bool(address)), "ray_address", "an address", address)
    share = gpus is None or (is_number(gpus) and (0 <= gpus <= 1 or (gpus > 0 and gpus == int(gpus))))
    require(share, "ray_gpus", "a share in [0, 1] or a whole number", gpus)
    require(loader is None or callable(loader), "ray_loader", "a function that returns a FederatedData", loader)
    if backend != "ray" and address is None:
        for name, value in (("ray_gpus", gpus), ("ray_loader", loader)):
            require(value is None, name, "left out unless the backend is 'ray'", value)
        return None
    if importlib.util.find_spec("ray") is None:
        raise ConfigError(f"backend 'ray' must have Ray installed: {install('ray')}. Got no module of that name.")
    return Cluster(address, gpus, loader)


@contextmanager
def connected(address: str | None, workers: int) -> Iterator[ModuleType]:
    """The module `ray`, connected. At the end, only what was started here is stopped."""
    ray: ModuleType = importlib.import_module("ray")
    if ray.is_initialized():
        _check_shared(ray, address)
        yield ray
        return
    address = address or os.environ.get("RAY_ADDRESS") or LOCAL
    if address == LOCAL:
        with (
            _folder() as folder,
            started(ray, loopback, namespace=NAMESPACE, num_cpus=workers or None, _temp_dir=str(folder)),
        ):
            yield ray
    else:
        with started(ray, _joined, namespace=NAMESPACE, address=address):
            yield ray


def _check_shared(ray: ModuleType, address: str | None) -> None:
    """Refuse an existing connection that leads to another cluster, or that another run will close."""
    context = ray.get_runtime_context()
    if context.namespace == NAMESPACE:
        raise ConfigError(
            "backend 'ray' must be used by one run at a time, which starts and stops it. "
            "Got a second run: call ray.init() before both, and they share it."
        )
    here = getattr(context, "gcs_address", None)
    if address not in (None, "auto", here):
        raise ConfigError(
            f"ray_address must be left out where the program is connected to Ray. Got {address!r} beside {here!r}."
        )


@contextmanager
def _folder() -> Iterator[Path]:
    """A temporary folder with a short name."""
    usual = tempfile.gettempdir()
    folder = Path(tempfile.mkdtemp(prefix="fedtempo-", dir=usual if len(usual) <= LONGEST_FOLDER - 18 else "/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class HeadLostError(WorkersLostError):
    """The head of the cluster is gone. Ray's own way to leave a cluster would wait for it."""


@contextmanager
def started(ray: ModuleType, start: Callable[..., None], **settings: object) -> Iterator[None]:
    """Ray until the end of the block. Ray installs its own handler of SIGTERM; the old one is put back afterwards."""
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about Ray's later versions and this machine, not about the run
            start(ray, log_to_driver=False, logging_level=logging.ERROR, **settings)
            gc.collect()  # Ray leaves open files to the collector, which warned of them in the middle of a round
        yield
    except HeadLostError:
        atexit.unregister(ray._private.worker.shutdown)
        raise
    except BaseException:
        _stop(ray)
        raise
    else:
        _stop(ray)
    finally:
        if main:
            signal.signal(signal.SIGTERM, handler)


def _stop(ray: ModuleType) -> None:
    processes = _processes(ray)
    ray.shutdown()
    for process in processes:
        process.wait(STOP_WITHIN_SECONDS)


def _processes(ray: ModuleType) -> list[Any]:
    """The processes that Ray started for this program. It kills them but does not wait for all of them to end."""
    node = ray._private.worker._global_node
    return [] if node is None else [entry.process for kind in node.all_processes.values() for entry in kind]


def _joined(ray: ModuleType, address: str, **settings: object) -> None:
    """Join a cluster."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        if host and port.isdigit():
            socket.create_connection((host, int(port)), ANSWERS_WITHIN_SECONDS).close()
        with _only_loopback() if host in (LOOPBACK, "localhost") else nullcontext():
            ray.init(address=address, **settings)
    except ImportError as error:
        raise ConfigError(f"ray_address {address!r} must have Ray's client: pip install 'ray[client]'.") from error
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        raise ConfigError(f"ray_address must lead to a Ray cluster. Got {address!r}: {first_line(error)}.") from error


def loopback(ray: ModuleType, **settings: object) -> None:
    """Start a cluster that other machines cannot reach."""
    try:
        with _only_loopback():
            context = ray.init(address=LOCAL, include_dashboard=False, _node_ip_address=LOOPBACK, **settings)
    except Exception as error:  # Ray raises a plain one where it does not start in time
        raise TrainingError(f"a local Ray cluster cannot be started: {first_line(error)}.") from error
    listens_at = context.address_info["node_ip_address"]
    if listens_at != LOOPBACK:
        raise TrainingError(f"a local Ray cluster must listen at {LOOPBACK}. Got {listens_at}: another Ray version?")


@contextmanager
def _only_loopback() -> Iterator[None]:
    """Make Ray listen on the loopback address only.

    By default Ray replaces a loopback address by the machine's outward address and listens on every interface. It does
    not if clusters of several machines are disabled. So they are disabled while Ray starts.
    """
    constants: Any = importlib.import_module("ray._private.ray_constants")
    enabled, before = constants.ENABLE_RAY_CLUSTER, {name: os.environ.get(name) for name in QUIET}
    constants.ENABLE_RAY_CLUSTER = False
    os.environ.update(QUIET)
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = enabled
        for name, value in before.items():
            os.environ.pop(name)
            os.environ.update({} if value is None else {name: value})
