"""What the build of these pages adds: the list of pages from the files that are there, and formulas as MathML."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.S)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)#\s]+)(#[^)]*)?\)")


def on_config(config: Any) -> Any:
    """Leave out pages that are not there, and add those that nobody named: folders under their own heading."""
    folder = Path(config.docs_dir)
    config.nav = _there(config.nav, folder)
    named = set(re.findall(r"'([^']+\.md)'", repr(config.nav)))
    for path in sorted(folder.rglob("*.md"), key=_by_number):
        name = path.relative_to(folder).as_posix()
        if name not in named:
            _section(config.nav, _heading(path.parent, folder)).append(name)
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """A link that leaves the pages, to a source file say, is only its text. A paper's page leads to its results."""
    folder = Path(config.docs_dir).resolve()
    here = (folder / page.file.src_uri).parent

    def kept(match: re.Match[str]) -> str:
        inside = (here / match[2]).resolve().is_relative_to(folder)
        return match[0] if inside else match[1]

    results = folder / "results" / here.joinpath(page.file.src_uri).name
    if here.name == "papers" and results.is_file() and f"../results/{results.name}" not in markdown:
        markdown += f"\n[The tables and figures that came out](../results/{results.name}).\n"
    return LINK.sub(kept, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Formulas become MathML, which browsers draw without scripts or fonts from elsewhere."""
    return FORMULA.sub(lambda m: convert(unescape(m[3]), display="block" if m[2] == "[" else "inline"), html)


def _by_number(path: Path) -> tuple[str, int, str]:
    """Folder by folder; 70 before 130."""
    return str(path.parent), int(path.stem) if path.stem.isdecimal() else 0, path.name


def _there(entries: list[Any], folder: Path) -> list[Any]:
    kept: list[Any] = []
    for entry in entries:
        ((title, value),) = entry.items() if isinstance(entry, dict) else ((None, entry),)
        if isinstance(value, list):
            kept.append({title: _there(value, folder)})
        elif (folder / value).is_file():
            kept.append(entry)
    return kept


def _heading(parent: Path, folder: Path) -> str:
    names = {"errors": "Exit codes", "api": "API", "papers": "Papers", "coming-from": "Coming from", ".": "More"}
    name = parent.relative_to(folder).as_posix()
    return names.get(name, name.replace("-", " ").capitalize())


def _section(nav: list[Any], title: str) -> list[Any]:
    for entry in nav:
        if isinstance(entry, dict) and title in entry and isinstance(entry[title], list):
            return entry[title]
    nav.append({title: []})
    return nav[-1][title]
