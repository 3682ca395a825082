"""pfl: two worker processes over torch.distributed, as its guide to fast simulations recommends.

`python -m benchmarks.peers.run_pfl W1`.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Any

from benchmarks.peers.turns import Turns, serve

WORKERS = 2


def start_others(module: str, name: str) -> None:
    """Start the other workers and make this process the first one."""
    os.environ |= {"PFL_WORKER_ADDRESSES": _free_addresses(), "PFL_WORKER_RANK": "0", "PFL_PYTORCH_DEVICE": "cpu"}
    command = [sys.executable, "-m", module, name]
    for rank in range(1, WORKERS):
        subprocess.Popen(command, env={**os.environ, "PFL_WORKER_RANK": str(rank)}, stdin=subprocess.DEVNULL)


def runner(turns: Turns) -> None:
    """Be the first worker and take turns with the driver."""
    start_others("benchmarks.peers.pfl_worker", sys.argv[1])
    # pfl connects its workers when it is imported, so this waits for the others.
    from benchmarks.peers.pfl_worker import train

    turns.ready(f"torch.distributed (gloo), {WORKERS} worker processes", "pfl", "torch")

    def begin(network: Any) -> bool:
        return turns.begin(lambda: [p.detach().numpy() for p in network.parameters()])

    train(sys.argv[1], begin, turns.done)


def _free_addresses() -> str:
    """Addresses on this machine that nobody uses."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(WORKERS)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ",".join(f"127.0.0.1:{port}" for port in ports)


if __name__ == "__main__":
    serve(runner)
