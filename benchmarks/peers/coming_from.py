"""`python -m benchmarks.peers.coming_from`: both halves of the pages for people who come from another library.

Each page has one task twice: a `python` block with FedTempo and a `py` block with the other library. Both are run as
they stand on the page, each in its own environment; they must print the same accuracy, and the page must say so.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import ROOT
from benchmarks.peers.contender import PeerFailedError
from benchmarks.peers.environments import PEERS, installed

FOLDER = ROOT / "docs" / "coming-from"
PAGES = {"flower": "flower", "fedlab": "fedlab", "pfl-research": "pfl", "blazefl": "blazefl"}
"""The environment of each page's other library."""
BEFORE = {"fedlab": "from benchmarks.peers import fedlab_import\n"}
"""What a block needs here and not elsewhere: FedLab beside a torchvision that was built for another torch."""
PATIENCE_SECONDS = 600


def halves(page: str) -> tuple[str, str]:
    """The task with FedTempo and with the other library."""
    text = (FOLDER / f"{page}.md").read_text()
    found = [re.search(rf"^```{kind}\n(.*?)^```", text, re.S | re.M) for kind in ("python", "py")]
    ours, theirs = (match[1] if match else "" for match in found)
    return ours, theirs


def printed(python: str, code: str, folder: Path) -> str:
    """The last line with an accuracy that a program prints."""
    program = folder / "program.py"
    program.write_text(code)
    settings = {
        "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
        "OMP_NUM_THREADS": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_worker_niceness": "0",
    }
    done = subprocess.run(
        ["env", *(f"{name}={value}" for name, value in settings.items()), python, str(program)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("accuracy ")]
    last = done.stderr.strip().splitlines()[-1:]
    return lines[-1] if lines else f"nothing (code {done.returncode}): {' '.join(last)}"


def main() -> None:
    """Run what was asked for; the exit code says whether all pages are right."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.coming_from", description=main.__doc__)
    parser.add_argument("pages", nargs="*", help=f"of {', '.join(PAGES)}; all by default")
    wrong = 0
    for page in parser.parse_args().pages or PAGES:
        ours, theirs = halves(page)
        with tempfile.TemporaryDirectory() as folder:
            mine = printed(sys.executable, ours, Path(folder))
            try:
                other = printed(installed(PEERS[PAGES[page]]), BEFORE.get(page, "") + theirs, Path(folder))
            except PeerFailedError as error:
                other = str(error)
        right = mine == other and f"`{mine}`" in (FOLDER / f"{page}.md").read_text()
        wrong += not right
        print(
            f"{page}: FedTempo prints {mine!r}, the other library {other!r}: {'right' if right else 'WRONG'}",
            flush=True,
        )
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
