"""No byte of a path, a label or a stored name is an order to the terminal."""

from __future__ import annotations

import ast
import fcntl
import io
import os
import pty
import re
import struct
import termios
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.table import Table

import fedtempo as ft
from fedtempo.support.printable import printable
from fedtempo.support.terminal import Terminal
from tests.programs import fedtempo
from tests.slow import slow_but

SOURCE = Path(ft.__file__).parent
EXAMPLE = SOURCE.parents[1] / "examples" / "feddecay.toml"
TITLE = "\x1b]0;owned\x07"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("plain, übel, 漢字 🙂", "plain, übel, 漢字 🙂"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x1b[2J", "\\x1b[2J"),
        ("back\rover", "back\\x0dover"),
        ("\x9b2J", "\\x9b2J"),
        ("\u202eslaer", "\\u202eslaer"),
        ("\udcff", "\\xff"),
    ],
)
def test_what_a_terminal_would_obey_is_written_out(text: str, written: str) -> None:
    assert printable(text) == written
    assert printable(written) == written


def test_tables_show_markup_and_escapes_as_they_stand() -> None:
    label = f"[link=file:///etc]a[/link] [/nothing] :smile: {TITLE}"
    table = Table("label")
    table.add_row(label)
    shown = io.StringIO()
    Terminal(file=shown, force_terminal=True, width=200).print(table)
    assert "[link=file:///etc]a[/link] [/nothing] :smile: \\x1b]0;owned" in shown.getvalue()
    assert TITLE not in shown.getvalue()


def on_a_terminal(*arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
    """All that the program writes to a real terminal of 80 columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    program = fedtempo(*arguments, output=theirs, error=theirs, environment=environment)
    os.close(theirs)
    said = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        said += piece
    os.close(ours)
    program.communicate()
    return said


def test_a_path_with_escapes_is_shown_and_not_obeyed(tmp_path: Path) -> None:
    folder = str(tmp_path / f"run{TITLE}")
    short = ["--set", "rounds=2", "--set", "evaluation.every=2", "--backend", "serial"]
    said = on_a_terminal("run", str(EXAMPLE), *short, "--out", folder)
    assert b"\x1b]0" not in said
    assert b"\x1b[" in said, "colours of our own are still there"
    assert b"\\x1b]0;owned\\x07" in re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]|[\r\n]", b"", said)
    again = on_a_terminal("run", str(EXAMPLE), "--out", folder)
    assert b"holds a run already" in again
    assert b"\x1b]0" not in again


PAGES = [("--help",), ("data", "list"), ("reproduce", "--list"), ("compare", "--help"), ("schedule", str(EXAMPLE))]


@pytest.mark.parametrize("command", slow_but(PAGES[:2], PAGES, "other pages by the same two doors"), ids=" ".join)
def test_without_colours_a_page_is_plain_and_80_columns_wide(command: tuple[str, ...]) -> None:
    plain = {**os.environ, "NO_COLOR": "1", "TERM": "xterm-256color"}
    plain.pop("COLUMNS", None)
    said = on_a_terminal(*command, environment=plain).decode()
    assert "\x1b" not in said
    lines = said.replace("\r\n", "\n").split("\n")
    assert len(lines) > 5 and max(map(len, lines)) <= 80
    if command == PAGES[0]:
        assert "\x1b[" in on_a_terminal(*command, environment={**plain, "NO_COLOR": ""}).decode(), "it can see escapes"


def test_every_line_goes_through_one_door() -> None:
    """Commands and progress print by `say` and `Terminal` alone."""
    for path in [*(SOURCE / "cli").glob("*.py"), *(SOURCE / "trackers").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("print", "Console"), f"{path.name}:{node.lineno}"
