"""Experiment files that would take gigabytes or minutes are refused at once, and sound ones are not."""

from __future__ import annotations

import resource
import time
import tomllib
from pathlib import Path

import pytest

from fedtempo.config import bounded_toml as toml
from fedtempo.config import read
from fedtempo.errors import ConfigError
from tests.faults.dying import in_child

SIZE = 80_000
HOSTILE = {
    "one dotted key": "a" + ".a" * (SIZE // 2) + " = 1",
    "one dotted key in quotes": '"a"' + '."a"' * (SIZE // 4) + " = 1",
    "one dotted key with spaces": "a" + " . a" * (SIZE // 4) + " = 1",
    "one dotted table": "[a" + ".a" * (SIZE // 2) + "]",
    "a dotted key in a table in a line": "x = {a" + ".a" * (SIZE // 2) + " = 1}",
    "after a string that looks open": "x = '\"'\na" + ".a" * (SIZE // 2) + " = 1",
    "after a long string with quotes of its own": 'x = """a"""""\na' + ".a" * (SIZE // 2) + " = 1",
    "after a comment": "# it's\na" + ".a" * (SIZE // 2) + " = 1",
    "the same dotted key many times": ("a." * 19 + "b = 1\n") * (SIZE // 44),
    "many dotted keys": "\n".join("a." * 18 + f"k{index} = 1" for index in range(SIZE // 50)),
    "many keys": "\n".join(f"k{index} = 1" for index in range(SIZE // 10)),
    "many tables": "\n".join(f"[t{index}]" for index in range(SIZE // 9)),
    "tables in lists": "[[a]]\n" * (SIZE // 6),
    "deep lists": "x = " + "[" * (SIZE // 2) + "]" * (SIZE // 2),
    "deep lists that do not end": "x = " + "[\n" * (SIZE // 2),
    "deep tables": "x = " + "{a=" * (SIZE // 5) + "1" + "}" * (SIZE // 5),
    "a long list": "x = [" + "1," * (SIZE // 2) + "]",
    "escapes": 'x = "' + "\\u0041" * (SIZE // 6) + '"',
    "a long number": "x = 0x" + "f" * SIZE,
    "quotes": '"' * SIZE,
    "backslashes": 'x = "' + "\\" * SIZE,
    "nothing but lines": "\n" * SIZE,
    "much too large": "x = 1\n" * 1_000_000,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_refused_in_under_a_second_and_little_memory(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.toml"
    path.write_text(HOSTILE[kind])

    def work() -> int:
        before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        try:
            read(path)
        except ConfigError as error:
            seconds = time.process_time() - began
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            print(f"{seconds:.2f} s, {grown} kB: {error}")
            short = len(str(error)) < 700 and "\n" not in str(error)
            return 0 if seconds < 1 and grown < 30_000 and short else 1
        return 2

    assert in_child(work) == (0, None)


SOUND = [
    'a = "' + "." * 100 + '"',
    "a = '" + "[" * 100 + "'",
    'a = """\n' + "[[[x.y.z\n" * 50 + '"""',
    "a = 1 # " + ".[" * 100,
    "[a.b.c]\nd.e = [[1.5, 2.5], [3.5]]\n[[f]]\ng = {h = 1979-05-27T07:32:00.999}",
    'a = [' + "1.5, " * 5_000 + "]",
    'a = ["' + '", "'.join("..." for _ in range(50)) + '"]',
    '"a.b".c = "\\"[[[["',
]  # fmt: skip


@pytest.mark.parametrize("text", SOUND)
def test_what_stands_in_strings_and_comments_does_not_count(text: str) -> None:
    assert toml.loads(text) == tomllib.loads(text)
