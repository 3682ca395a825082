"""Settings of Flower and Ray for the benchmarks; set when this is imported, which has to be before Flower is."""

from __future__ import annotations

import os
from typing import Any

from benchmarks.workloads import FOLDER

os.environ |= {
    "FLWR_HOME": str(FOLDER / "flower"),
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",
}


def backend(actors: int) -> dict[str, Any]:
    """So many Ray actors of one processor each, on this machine."""
    return {
        "init_args": {"num_cpus": actors, "_node_ip_address": "127.0.0.1"},
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
    }
