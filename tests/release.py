"""`make release`: the wheel, installed where nothing of this repository is, does what the documentation says it does.

Run: python -m tests.release dist. It works in a new folder, in an environment with the wheel and its dependencies.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

CONSTRAINTS = Path(__file__).resolve().parents[1] / "constraints.txt"
WITHOUT_FEDTEMPO = """
import sys, torch
outputs = torch.export.load("model.pt2").module()(torch.zeros(3, 64))
assert outputs.shape == (3, 10) and "fedtempo" not in sys.modules
"""
STEPS = (
    ("fedtempo", "--version"),
    ("fedtempo", "demo"),
    ("fedtempo", "new", "experiment.toml", "--data", "digits", "--rounds", "5"),
    ("fedtempo", "run", "experiment.toml", "--out", "runs/a", "--quiet"),
    ("fedtempo", "resume", "runs/a", "--rounds", "6", "--quiet"),
    ("fedtempo", "reproduce", "decaying-k-quadratic", "--scale", "smoke"),
    ("fedtempo", "export", "runs/a", "--format", "torch", "--out", "model.pt2"),
    ("python", "-c", WITHOUT_FEDTEMPO),
    ("fedtempo", "deploy", "trial", "--out", "trial"),
)
LEFT = ("runs/a/report.html", "reproduced/decaying-k-quadratic/smoke/table.json", "model.pt2", "trial/run/report.html")


def main(folder: Path) -> None:
    """Install the newest wheel of a folder into an empty environment, and use it from another folder."""
    wheel = max(folder.glob("*.whl"), key=lambda path: path.stat().st_mtime).resolve()
    with TemporaryDirectory(prefix="fedtempo-release-") as place:
        programs, work = Path(place, "environment", "bin"), Path(place, "work")
        work.mkdir()
        alone = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "FEDTEMPO_DATA")}
        alone["PATH"] = f"{programs}{os.pathsep}{alone['PATH']}"  # Flower's programs are found on the path
        _step([sys.executable, "-m", "venv", programs.parent], work, alone)
        _step([*_install(programs / "python"), "-c", CONSTRAINTS, f"{wheel}[flower]"], work, alone)
        for program, *arguments in STEPS:
            _step([programs / program, *arguments], work, alone)
        missing = [name for name in LEFT if not (work / name).is_file()]
        if missing:
            raise SystemExit(f"release: {', '.join(missing)} must have been written, and was not")
    print(f"release: {wheel.name} installs and works")


def _install(python: Path) -> list[str | Path]:
    """uv where it is beside this interpreter, which is much faster, else pip."""
    uv = Path(sys.executable).with_name("uv")
    if uv.exists():
        return [uv, "pip", "install", "--quiet", "--python", python]
    return [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]


def _step(command: list[str | Path], folder: Path, environment: dict[str, str]) -> None:
    began = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)
    words = " ".join(map(str, command)).splitlines()[0]
    print(f"{time.monotonic() - began:6.1f} s  {words}", flush=True)
    if done.returncode:
        raise SystemExit(f"release: this ended with {done.returncode}\n{done.stdout}\n{done.stderr}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
