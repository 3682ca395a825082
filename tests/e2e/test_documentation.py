"""Every Python block of the README and of the documentation runs, and every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_code_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M)
    scope: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(page.name), "exec"), scope)
    assert page.exists()


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_toml_blocks_are_experiments(page: Path) -> None:
    import tomllib

    from fedtempo.config import parse

    for block in re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.S | re.M):
        parse(tomllib.loads(block))
    assert page.exists()
