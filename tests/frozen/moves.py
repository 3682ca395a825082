"""Move a module or a package, and rewrite every place that names it: source, tests, benchmarks, docs.

    python -m tests.frozen.moves fedtempo.report.folder fedtempo.report.tables.folder
    python -m tests.frozen.moves --dry-run fedtempo.tuning fedtempo.study.tuning

Rewritten are imports (`import a.b`, `from a import b`, `from a.b import c`), the module's dotted name in text, such as
that of `monkeypatch.setattr("a.b.c", ...)`, and its file's path. A commit that moves does nothing else.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests import ROOT

TEXTS = {".py", ".md", ".toml", ".cfg", ".txt", ".ipynb", ".js", ".html"}
ROOMS = ("src", "tests", "benchmarks", "docs", "examples", "CONTRIBUTING.md", "README.md", "SECURITY.md")
TOP_FILES = ("Makefile", "pyproject.toml")


class MoveError(Exception):
    """Why a move cannot be made."""


def path_of(root: Path, module: str) -> Path:
    """The module's file, or the package's folder."""
    base = root / "src" / Path(*module.split("."))
    return base if base.is_dir() else base.with_suffix(".py")


def files(root: Path) -> Iterator[Path]:
    """Every file that may name a module. What is stored of runs (docs/results) is no text of ours."""
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, tracked.split("\0")):
        path = root / name
        here = name in TOP_FILES or name.startswith(ROOMS)
        if here and path.is_file() and (path.suffix in TEXTS or name in TOP_FILES):
            yield path


def rewritten(text: str, old: str, new: str) -> str:
    """The text with every name of the module replaced: dotted, as a path, and in imports from its package."""
    dotted = re.compile(rf"(?<![\w.]){re.escape(old)}(?!\w)")
    text = dotted.sub(new, text)
    old_path, new_path = old.replace(".", "/"), new.replace(".", "/")
    text = re.sub(rf"(?<!\w){re.escape(old_path)}(?!\w)", new_path, text)
    # Documentation names files from the package on, such as `training/one_round.py`.
    inside, newly = (one.partition("/")[2] for one in (old_path, new_path))
    if "/" in inside:
        text = re.sub(rf"(?<![\w/]){re.escape(inside)}(?=\.py\b|/)", newly, text)
    return _imports_from_package(text, old, new)


def _imports_from_package(text: str, old: str, new: str) -> str:
    """`from package import module`, alone or among other names, with `as` where the module's own name changes."""
    package, _, name = old.rpartition(".")
    new_package, _, new_name = new.rpartition(".")
    if f"from {package} import" not in text:
        return text
    try:
        tree = ast.parse(text)
    except SyntaxError:  # a page: its blocks of code are tried by the tests of the documentation
        plain = f"from {new_package} import {new_name}" + ("" if name == new_name else f" as {name}")
        return re.sub(rf"from {re.escape(package)} import {name}(?=\s*$)", plain, text, flags=re.M)
    lines = text.splitlines(keepends=True)
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == package and any(a.name == name for a in node.names)
    ]
    for node in sorted(found, key=lambda one: -one.lineno):
        indent = " " * node.col_offset
        others = [_spelt(alias) for alias in node.names if alias.name != name]
        moved = next(alias for alias in node.names if alias.name == name)
        called = moved.asname or name
        alias = new_name if called == new_name else f"{new_name} as {called}"
        statements = [f"from {package} import {', '.join(others)}"] if others else []
        statements.append(f"from {new_package} import {alias}")
        lines[node.lineno - 1 : node.end_lineno] = [f"{indent}{one}\n" for one in statements]
    return "".join(lines)


def _spelt(alias: ast.alias) -> str:
    return alias.name if alias.asname is None else f"{alias.name} as {alias.asname}"


def move(root: Path, old: str, new: str, dry_run: bool = False) -> list[str]:
    """Move the file or folder and rewrite what names it. Returns the files that change."""
    source, target = path_of(root, old), root / "src" / Path(*new.split("."))
    if not source.exists():
        raise MoveError(f"{old} is no module: there is no {source.relative_to(root)}.")
    target = target if source.is_dir() else target.with_suffix(".py")
    if target.exists():
        raise MoveError(f"{new} is there already: {target.relative_to(root)}.")
    pairs = [(source, target), *_tests_of(root, source, target)]
    if not dry_run:
        for one, other in pairs:
            other.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["git", "mv", str(one), str(other)], cwd=root, check=True)
        _make_packages(root, target.parent)
    changed = []
    for path in files(root):
        text = path.read_text(encoding="utf-8")
        after = rewritten(text, old, new)
        for one, other in pairs[1:]:
            was, now = (path.relative_to(root).with_suffix("").as_posix() for path in (one, other))
            after = after.replace(was, now).replace(was.replace("/", "."), now.replace("/", "."))
        if after != text:
            changed.append(path.relative_to(root).as_posix())
            if not dry_run:
                path.write_text(after, encoding="utf-8")
    return changed


def _tests_of(root: Path, source: Path, target: Path) -> list[tuple[Path, Path]]:
    """The unit tests that stand where the module stands."""
    base, tests = root / "src" / "fedtempo", root / "tests" / "unit"
    one, other = tests / source.relative_to(base), tests / target.relative_to(base)
    if source.is_file():
        one, other = (path.with_name(f"test_{path.name}") for path in (one, other))
    return [(one, other)] if one.exists() and not other.exists() else []


def _make_packages(root: Path, folder: Path) -> None:
    """A folder of modules needs an `__init__.py`; it is left for you to fill."""
    while folder != root / "src":
        if not (folder / "__init__.py").exists():
            (folder / "__init__.py").write_text('"""Say what these modules have in common."""\n', encoding="utf-8")
        folder = folder.parent


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.frozen.moves", description=__doc__.splitlines()[0])
    parser.add_argument("old", help="the module or package, such as fedtempo.report.folder")
    parser.add_argument("new", help="its new name")
    parser.add_argument("--dry-run", action="store_true", help="only list the files that would change")
    given = parser.parse_args(arguments)
    try:
        changed = move(ROOT, given.old, given.new, given.dry_run)
    except MoveError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(changed))
    print(f"{len(changed)} files {'would change' if given.dry_run else 'changed; now: make format'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
