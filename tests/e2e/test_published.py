"""What readers are told to install exists: from a clone until the package is published, from the index afterwards."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from fedtempo.support.extras import PUBLISHED, install
from tests import ROOT

TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md"]
TEXTS += [path for folder in ("docs", "examples", "src/fedtempo") for path in sorted((ROOT / folder).rglob("*"))]
TEXTS = [path for path in TEXTS if path.suffix in (".md", ".py", ".toml", ".ipynb")]
FROM_INDEX = re.compile(
    r"""(?:pipx? install|pipx run|uvx|uv add|uv tool \w+|conda install)\s+(?:-\S+\s+)*["']?fedtempo"""
)
OUR_SITES = re.compile(r"https?://(?:github\.com/fedtempo|raw\.githubusercontent\.com/fedtempo|fedtempo\.readthedocs)")
INSTALLING = [ROOT / "README.md", ROOT / "docs" / "install.md", ROOT / "docs" / "index.md"]
unpublished = pytest.mark.skipif(PUBLISHED, reason="the package is published")
published = pytest.mark.skipif(not PUBLISHED, reason="the package is not published")


def found(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}: {match[0]}" for path in TEXTS for match in pattern.finditer(path.read_text("utf-8"))
    ]


@unpublished
def test_nothing_is_installed_from_an_index_that_does_not_have_it() -> None:
    ours = ROOT / "src" / "fedtempo" / "support" / "extras.py"
    assert [line for line in found(FROM_INDEX) if not line.startswith(str(ours.relative_to(ROOT)))] == []
    assert all("Not on PyPI yet" in page.read_text() and "pip install ." in page.read_text() for page in INSTALLING)
    assert "fedtempo" not in install("tune").partition(" in ")[0]


@unpublished
def test_no_link_leads_to_a_site_that_is_not_there() -> None:
    assert found(OUR_SITES) == []
    assert "urls" not in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@unpublished
def test_nothing_dates_a_release_that_was_not_made() -> None:
    assert "date-released" not in (ROOT / "CITATION.cff").read_text()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"## [{version}] - unreleased" in (ROOT / "CHANGELOG.md").read_text()


@published
@pytest.mark.parametrize("page", INSTALLING, ids=lambda page: page.name)
def test_readers_are_told_to_install_the_package(page: Path) -> None:
    assert "pip install fedtempo" in page.read_text() and "Not on PyPI" not in page.read_text()


@published
def test_the_release_has_a_date() -> None:
    assert "date-released" in (ROOT / "CITATION.cff").read_text()
    assert not re.search(r"^## \[\d.*unreleased", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize(
    "command",
    [
        "pip install fedtempo",
        "pip install 'fedtempo[all]'",
        "uvx fedtempo demo",
        "uv add fedtempo",
        "pip install -U fedtempo",
    ],
)
def test_a_command_that_asks_an_index_is_noticed(command: str) -> None:
    assert FROM_INDEX.search(command)
    assert not FROM_INDEX.search("pip install '.[all]'") and not FROM_INDEX.search("pip install .")
