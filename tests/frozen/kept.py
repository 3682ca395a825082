"""A JSON file with one line per entry: it is compared entry by entry, and git shows which entries a commit changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Table = dict[str, Any]


def write(path: Path, head: Mapping[str, Any], entries: Mapping[str, Any]) -> None:
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(entries[name])}" for name in sorted(entries))
    start = "".join(f" {json.dumps(name)}: {json.dumps(value)},\n" for name, value in head.items())
    path.write_text(f'{{\n{start} "entries": {{\n{lines}\n }}\n}}\n', encoding="utf-8")


def read(path: Path) -> tuple[Table, Table]:
    """The head and the entries."""
    content: Table = json.loads(path.read_text(encoding="utf-8"))
    entries: Table = content.pop("entries")
    return content, entries
