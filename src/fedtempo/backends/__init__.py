"""Backends: the only modules that know how clients run."""

from fedtempo.backends.backend import Backend, Block, Order, Trained
from fedtempo.backends.choice import (
    BACKEND_NAMES,
    BACKENDS,
    Choice,
    block_size,
    choose,
    choose_backend,
    choose_workers,
    engine_for,
    parameters_of_a_step,
)
from fedtempo.backends.collect import compressed, end, read_together, run_blocks
from fedtempo.backends.engine import Calibration, Engine, InProcess, WorkerPool
from fedtempo.backends.processes import Processes
from fedtempo.backends.ray_actors import RayActors
from fedtempo.backends.ray_cluster import Cluster, cluster_for
from fedtempo.backends.serial import plain_serial, serial
from fedtempo.backends.vectorised import vectorised

__all__ = [
    "BACKENDS",
    "BACKEND_NAMES",
    "Backend",
    "Block",
    "Calibration",
    "Choice",
    "Cluster",
    "Engine",
    "InProcess",
    "Order",
    "Processes",
    "RayActors",
    "Trained",
    "WorkerPool",
    "block_size",
    "choose",
    "choose_backend",
    "choose_workers",
    "cluster_for",
    "compressed",
    "engine_for",
    "end",
    "parameters_of_a_step",
    "read_together",
    "plain_serial",
    "run_blocks",
    "serial",
    "vectorised",
]
