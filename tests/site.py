"""Builds the site, or a few pages of it, for the tests that look at it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT


def build_site(folder: Path, *, without: tuple[str, ...] = ()) -> Path:
    """The site as `make docs` builds it, a warning is an error; or, for speed, the site `without` some pages."""
    pytest.importorskip("sphinx", reason="the documentation's tools are not here: pip install '.[docs]'")
    place, trees = folder / "html", folder / "trees"
    command = [sys.executable, "-m", "sphinx", "--quiet", "--builder", "html", "--doctree-dir", str(trees)]
    command += ["-D", f"exclude_patterns={','.join(without)}"] if without else ["--fail-on-warning"]
    built = subprocess.run(
        [*command, "docs", str(place)], cwd=ROOT, check=False, capture_output=True, text=True, timeout=600
    )
    assert built.returncode == 0, built.stderr
    assert without or not built.stderr
    return place
