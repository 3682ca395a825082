"""The plan in a study's folder: written before the first run, and refused where another one is there."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from fedtempo.errors import OutputError, shown
from fedtempo.support.files import read_inside, write_atomically
from fedtempo.support.json_text import JsonTable

PLAN = "plan.json"


def keep_plan(folder: Path, plan: JsonTable, may_grow: Collection[str] = ()) -> None:
    """Write the plan, or make sure that the one there is the same. Lists that `may_grow` may have got more entries."""
    path = folder / PLAN
    text = json.dumps(plan, indent=1) + "\n"
    if not path.exists():
        write_atomically(path, text, "out")
        return
    try:
        stored = json.loads(read_inside(folder, PLAN))
    except (OSError, ValueError):
        stored = None
    if not isinstance(stored, dict):
        raise OutputError(f"out must be a folder whose {PLAN} can be read. Got {path}.")
    grown = False
    for field in dict.fromkeys([*plan, *stored]):
        was, now = stored.get(field), plan.get(field)
        if was == now:
            continue
        if field in may_grow and isinstance(was, list) and isinstance(now, list):
            grown = grown or len(now) > len(was)
            continue
        before, after = _first_difference(field, was, now)
        raise OutputError(
            f"a plan must not change once it is written: take another folder. {before}, in {path}. Got {after}."
        )
    if grown:
        write_atomically(path, text, "out")


def _first_difference(field: str, stored: object, mine: object) -> tuple[str, str]:
    """The innermost field that differs, with both values."""
    while isinstance(stored, dict) and isinstance(mine, dict):
        was, now = stored, mine
        key = next(key for key in (*was, *now) if was.get(key) != now.get(key))
        field, stored, mine = f"{field}.{key}", was.get(key), now.get(key)
    return f"{field} is {shown(stored)}", shown(mine)
