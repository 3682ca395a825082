"""The tools that freeze numbers and words see a change, and a move rewrites everything that names a module."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

from tests.frozen import kept, moves, numbers, words


def test_equal_runs_have_equal_numbers_and_another_seed_is_seen() -> None:
    once, again = numbers.train("mlp", "fedper"), numbers.train("mlp", "fedper")
    other = numbers.train("mlp", "fedper", seed=2)
    assert not numbers.compared({"fedper": once}, {"fedper": again})
    (line,) = numbers.compared({"fedper": once}, {"fedper": other})
    assert "other bits" in line


def test_rounding_is_told_from_a_difference() -> None:
    run = {"digest": "a", "costs": {"steps": 3}, "scores": {"existing": {"loss": 1.0}}, "sums": {"w": 2.0}}
    close = {**run, "digest": "b", "sums": {"w": 2.0 + 1e-15}}
    far = {**run, "digest": "b", "scores": {"existing": {"loss": 1.1}}}
    assert numbers.compared({"one": run}, {"one": close})[0].endswith("at sums/w, within 1e-12")
    assert (
        numbers.compared({"one": run}, {"one": far})[0] == "one: other bits; differs by 0.091 at scores/existing/loss"
    )
    assert numbers.compared({"one": run}, {}) == ["one: gone"]
    assert numbers.compared({}, {"one": run}) == ["one: new"]


def test_the_file_holds_every_algorithm_and_belongs_to_a_kind_of_processor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    head, entries = kept.read(numbers.FILE)
    assert set(entries) == {name for name, _ in numbers.cases(wide=True)}
    assert head["made_on"].keys() == numbers.here().keys()
    monkeypatch.setattr(numbers, "here", lambda: {"machine": "another", "torch": torch.__version__})
    assert numbers.main([]) == numbers.ELSEWHERE
    assert "--make --at COMMIT" in capsys.readouterr().out


def test_words_show_what_changed() -> None:
    before, now = {"error: run, seed": ["seed must be 1."]}, {"error: run, seed": ["seed must be 2."], "x": []}
    assert words.compared(before, now) == ["error: run, seed", "  - seed must be 1.", "  + seed must be 2.", "x"]
    said = dict(words._errors_of("fedsgd", words._with_needed(words.ALGORITHMS["fedsgd"]), words.ALGORITHMS["fedsgd"]))
    assert "lr must be a finite number or a schedule." in said["error: fedsgd, lr"]  # type: ignore[operator]


FILES = {
    "src/fedtempo/__init__.py": "",
    "src/fedtempo/a/__init__.py": "",
    "src/fedtempo/a/old.py": "VALUE = 1\n",
    "src/fedtempo/a/older.py": "from fedtempo.a.old import VALUE\n",
    "src/fedtempo/user.py": "from fedtempo.a import old, older\n\nprint(old.VALUE, older.VALUE)\n",
    "tests/unit/a/test_old.py": 'import fedtempo.a.old\n\nPATCHED = "fedtempo.a.old.VALUE"\n',
    "tests/unit/a/test_older.py": "from tests.unit.a.test_old import PATCHED\n",
    "docs/page.md": "See `a/old.py`, `src/fedtempo/a/old.py` and `fedtempo.a.older`.\n",
}


def test_a_move_rewrites_imports_patches_and_pages(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    assert "docs/page.md" in moves.move(tmp_path, "fedtempo.a.old", "fedtempo.b.new", dry_run=True)
    assert (tmp_path / "src/fedtempo/a/old.py").exists()
    moves.move(tmp_path, "fedtempo.a.old", "fedtempo.b.new")
    texts = {path.relative_to(tmp_path).as_posix(): path.read_text() for path in moves.files(tmp_path)}
    assert texts["src/fedtempo/b/new.py"] == "VALUE = 1\n" and "src/fedtempo/b/__init__.py" in texts
    assert texts["src/fedtempo/a/older.py"] == "from fedtempo.b.new import VALUE\n"
    assert texts["src/fedtempo/user.py"] == (
        "from fedtempo.a import older\nfrom fedtempo.b import new as old\n\nprint(old.VALUE, older.VALUE)\n"
    )
    assert texts["tests/unit/b/test_new.py"] == 'import fedtempo.b.new\n\nPATCHED = "fedtempo.b.new.VALUE"\n'
    assert texts["docs/page.md"] == "See `b/new.py`, `src/fedtempo/b/new.py` and `fedtempo.a.older`.\n"
    assert texts["tests/unit/a/test_older.py"] == "from tests.unit.b.test_new import PATCHED\n"
    with pytest.raises(moves.MoveError, match="no module"):
        moves.move(tmp_path, "fedtempo.a.old", "fedtempo.c")
