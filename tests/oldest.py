"""The oldest releases of what FedTempo needs, as constraints for pip: `python -m tests.oldest > constraints.txt`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def oldest() -> Iterator[str]:
    """Every dependency at its lower bound."""
    for line in tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]:
        found = re.fullmatch(r"([\w-]+)>=([\d.]+)(?:;.*)?", line.replace(" ", ""))
        if found is None:
            raise SystemExit(f"a dependency must have a lower bound. Got {line!r}.")
        name, bound = found.groups()
        yield f"{name}=={bound}" if bound.count(".") > 1 else f"{name}=={bound}.*"


if __name__ == "__main__":
    print("\n".join(oldest()))
