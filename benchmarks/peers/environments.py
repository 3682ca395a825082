"""The other frameworks: what to install, which script runs them, and how each of them is at its fastest."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import ROOT
from benchmarks.peers.contender import PeerFailedError

FOLDER = ROOT / ".venv-peers"
TORCH = "torch==2.13.0"
NEWEST_MINOR = 14


@dataclass(frozen=True)
class Peer:
    """A framework in one of its configurations."""

    title: str
    environment: str
    requirements: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    oldest: tuple[int, int] = (3, 10)
    """The oldest Python it installs on."""

    @property
    def runner(self) -> str:
        """The script that runs its rounds."""
        return f"benchmarks.peers.run_{self.environment}"

    @property
    def experimenter(self) -> str:
        """The script that runs whole experiments with it."""
        return f"{self.runner}_experiment"


FEDLAB = ("fedlab==1.3.0", TORCH)
# FedJAX 0.0.17 calls jax.tree_map, which JAX 0.6 no longer has. Torch gives it the others' batches and first weights.
FEDJAX = ("fedjax==0.0.17", "jax==0.5.3", "jaxlib==0.5.3", TORCH)
PEERS = {
    "blazefl": Peer("BlazeFL", "blazefl", ("blazefl[reproducibility]==2.0.3", TORCH), oldest=(3, 12)),
    "pfl": Peer("pfl", "pfl", ("pfl==0.6.0", TORCH)),
    "flower": Peer("Flower", "flower", ("flwr[simulation]==1.41.0", "ray==2.55.1", TORCH)),
    "fedlab": Peer("FedLab", "fedlab", FEDLAB),
    "fedlab-one": Peer("FedLab, one process", "fedlab", FEDLAB, ("one",)),
    "fedjax": Peer("FedJAX", "fedjax", FEDJAX),
    "fedjax-pmap": Peer("FedJAX, pmap", "fedjax", FEDJAX, ("pmap",)),
}


def installed(peer: Peer, folder: Path = FOLDER) -> str:
    """The Python of a framework's environment, which is made when it is missing or was made for something else."""
    place = folder / peer.environment
    python, marker, wanted = place / "bin" / "python", place / "installed.txt", "\n".join(peer.requirements)
    if marker.exists() and marker.read_text() == wanted:
        return str(python)
    print(f"installing {', '.join(peer.requirements)}", flush=True)
    _run([_interpreter(peer), "-m", "venv", "--clear", str(place)])
    _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.requirements])
    marker.write_text(wanted)
    return str(python)


def _interpreter(peer: Peer) -> str:
    """This Python, or one that is new enough: on the path, or installed by pyenv."""
    if sys.version_info >= peer.oldest:
        return sys.executable
    managed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in range(peer.oldest[1], NEWEST_MINOR + 1):
        on_path = shutil.which(f"python3.{minor}")
        found = [on_path] if on_path else []
        for candidate in (*found, *map(str, managed.glob(f"3.{minor}.*/bin/python"))):
            # pyenv puts names on the path for all Pythons that it has, also for those that it does not start.
            if not subprocess.run([candidate, "--version"], capture_output=True, check=False).returncode:
                return candidate
    raise PeerFailedError(f"not installed: needs Python {'.'.join(map(str, peer.oldest))}, and none was found")


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise PeerFailedError(f"not installed: {error}") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise PeerFailedError(f"not installed: {lines[0] if lines else f'exit code {done.returncode}'}")
