"""TOML from anybody: bounded in size, depth and number of keys before Python's parser sees it.

The parser keeps every prefix of a dotted key: 40,000 parts in one key take gigabytes. One pass over the text, with
strings and comments taken out, finds what no experiment file has.
"""

from __future__ import annotations

import re
import tomllib

from fedtempo.errors import require

LARGEST = 100_000
"""Characters of a file."""
DEEPEST = 20
"""Parts of a key, and brackets within brackets."""
MOST_KEYS = 5_000
"""Keys and tables of a file."""
_TEXTS = re.compile(
    r'"""(?:[^"\\]++|\\.|"(?!""))*+"{3,5}'  # a string over several lines may end with two quotes of its own
    r"|'''(?:[^']++|'(?!''))*+'{3,5}"
    r'|"(?:[^"\\\n]++|\\.)*+"'
    r"|'[^'\n]*+'"
    r"|\#[^\n]*+",
    re.DOTALL,
)


def loads(text: str, name: str = "experiment file") -> dict[str, object]:
    """The values of a TOML text; `ConfigError` if it is too large, deep or full, `ValueError` if it is no TOML."""
    require(len(text) <= LARGEST, name, f"at most {LARGEST} characters", f"{len(text)} characters")
    bare = _TEXTS.sub("_", text)
    keys = bare.count("=") + len(re.findall(r"^[ \t]*\[", bare, re.MULTILINE))
    require(keys <= MOST_KEYS, name, f"of at most {MOST_KEYS} keys and tables", f"{keys} of them")
    parts = max((piece.count(".") + 1 for piece in re.split(r"[=,\[\]{}\n]", bare)), default=0)
    require(parts <= DEEPEST, name, f"of keys with at most {DEEPEST} parts", f"{parts} parts")
    depth = _nesting(bare)
    require(depth <= DEEPEST, name, f"at most {DEEPEST} tables and lists deep", f"{depth} levels")
    return tomllib.loads(text)


def _nesting(bare: str) -> int:
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", bare):
        depth = depth + 1 if bracket in "[{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    return deepest
