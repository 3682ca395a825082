"""Known holes in the releases we pin: `python -m tests.audit` asks by way of pip-audit; `--strict` wants every answer.

A machine without the network cannot ask. That is said, and is no failure of the code; a hole that is known is.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PINNED = Path(__file__).resolve().parents[1] / "constraints.txt"


def asked(path: Path) -> dict[str, Any] | None:
    """What pip-audit knows about pinned releases; None where its database cannot be reached."""
    command = [sys.executable, "-m", "pip_audit", "-r", str(path), "--no-deps", "--disable-pip", "-f", "json"]
    done = subprocess.run([*command, "--progress-spinner", "off"], capture_output=True, text=True, check=False)
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return None
    return found


def verdict(found: dict[str, Any] | None, strict: bool) -> tuple[int, str]:
    """The exit code and what to say."""
    if found is None:
        return int(strict), "audit: the database of known holes cannot be reached; nothing was audited"
    releases = found["dependencies"]
    skipped = [each for each in releases if "skip_reason" in each]
    holes = [f"{each['name']} {each['version']}: {hole['id']}" for each in releases for hole in each.get("vulns", [])]
    if holes:
        return 1, "audit: known holes\n" + "\n".join(holes)
    said = f"audit: no known hole in {len(releases) - len(skipped)} of {len(releases)} pinned releases"
    return int(strict and bool(skipped)), said + (f"; {len(skipped)} could not be asked about" if skipped else "")


if __name__ == "__main__":
    code, words = verdict(asked(PINNED), "--strict" in sys.argv)
    print(words)
    sys.exit(code)
