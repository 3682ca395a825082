"""Which commit a results page names."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fedtempo.cli.reproduce import _commit

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(folder: Path, *command: str) -> str:
    name = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.run(
        ["git", *name, *command], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package beside a folder of pages, both committed."""
    found = tmp_path / "package"
    for file in (found / "__init__.py", tmp_path / "docs" / "page.md"):
        file.parent.mkdir()
        file.write_text("first\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return found


def test_pages_that_were_written_do_not_change_the_program(package: Path) -> None:
    head = git(package, "rev-parse", "HEAD")
    (package.parent / "docs" / "page.md").write_text("second\n")
    assert _commit(package) and head.startswith(_commit(package))
    (package / "__init__.py").write_text("second\n")
    assert _commit(package).endswith("-dirty")


def test_a_package_that_is_installed_inside_another_repository_has_no_commit(package: Path) -> None:
    installed = package.parent / "environment" / "package"
    installed.mkdir(parents=True)
    (installed / "__init__.py").touch()
    assert _commit(installed) == ""
    assert _commit(package.parent / "nowhere") == ""
