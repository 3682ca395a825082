"""Where the library starts programs, listens, or writes files: `python -m tests.look` compares with what is meant.

`tests/meant.toml` names every module or room that does one of these, with the reason. A place that it does not name
fails the look, and so does a line of it that nothing needs any more. The look reads names in the source and runs
nothing.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests import ROOT

SOURCE, MEANT = ROOT / "src" / "fedtempo", ROOT / "tests" / "meant.toml"
CALLS = {
    "starts programs": r"^(subprocess\.\w+|os\.(system|popen|exec\w*|spawn\w*|posix_spawn\w*|fork\w*|kill)|pty\.\w+)$"
    r"|(^|\.)(Process|Popen|create_subprocess_\w+)$|^ray\.init$",
    "listens": r"(?<!signature)(?<!\))\.(bind|listen|create_server|start_server)$"
    r"|^socket\.(socket|create_server)$|^(uvicorn\.\w+|\w+(HTTP|TCP|UDP|Page)Server|(HTTP|TCP|UDP|Page)Server)$",
    "writes": r"\.(write_text|write_bytes|touch|mkdir|unlink|rmdir|rename|symlink_to|hardlink_to|link_to|chmod)$"
    r"|\.(savez\w*|to_csv|to_parquet|write_table|save_file|extract|extractall|executescript)$"
    r"|^os\.(open|remove|unlink|rename|replace|mkdir|makedirs|rmdir|symlink|link|chmod|chown|truncate|mkfifo)$"
    r"|^shutil\.\w+$|^(tempfile\.(mkdtemp|mkstemp|\w*Temporary\w*)|NamedTemporaryFile|TemporaryDirectory|mkdtemp)$"
    r"|^sqlite3\.connect$|^(write_atomically|replacing)$|^(torch|np|numpy|onnx)\.save\w*$|(^|\.)FileLock$",
}
"""What a call is named that does it."""


def found_in(path: Path) -> Iterator[tuple[str, int, str]]:
    """Kind, line and name of every such call in a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        reads = name == "os.open" and not re.search("WRONLY|RDWR|CREAT", ast.unparse(node))
        for kind, pattern in CALLS.items():
            if re.search(pattern, name) and not reads:
                yield kind, node.lineno, name
        if re.search(r"(^|\.)(open|fdopen)$", name) and name != "os.open" and set(_mode(node, name)) & set("wax+"):
            yield "writes", node.lineno, name


def _mode(call: ast.Call, name: str) -> str:
    """The mode of an `open`: its second argument, or its first where it is a path's."""
    place = 1 if name in ("open", "os.fdopen", "io.open") else 0
    given = [*call.args[place : place + 1], *(word.value for word in call.keywords if word.arg == "mode")]
    return next((str(one.value) for one in given if isinstance(one, ast.Constant)), "r")


def wrong() -> list[str]:
    """What is done and not meant, and what is meant and not done, a line each."""
    meant: dict[str, dict[str, str]] = tomllib.loads(MEANT.read_text(encoding="utf-8"))
    lines: list[str] = []
    done: set[tuple[str, str]] = set()
    for path in sorted(SOURCE.rglob("*.py")):
        place = str(path.relative_to(SOURCE))
        for kind, line, name in found_in(path):
            rooms = [
                room for room in meant.get(kind, {}) if room == place or (room[-1] == "/" and place.startswith(room))
            ]
            done |= {(kind, room) for room in rooms}
            if not rooms:
                lines.append(f"{place}:{line} {kind}: {name}. If that is meant, say why in tests/meant.toml.")
    stale = [(kind, place) for kind, places in meant.items() for place in places if (kind, place) not in done]
    return lines + [f"tests/meant.toml: {place} no longer {kind}" for kind, place in stale]


if __name__ == "__main__":
    found = wrong()
    print("\n".join(found) or "look: every place that starts programs, listens or writes is meant")
    sys.exit(bool(found))
