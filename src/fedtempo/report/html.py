"""One self-contained HTML page about one or several runs: works offline, from a mail attachment.

Nothing that comes from outside can run in it. Text is escaped, the numbers are JSON without a `<`, the script writes
text nodes only, and a content security policy lets the browser run this one script and reach no network.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path

from fedtempo.report.body import footer, head, runs_section, section
from fedtempo.report.payload import payload
from fedtempo.report.sections import Section
from fedtempo.report.tables import result_table
from fedtempo.support.display import shows
from fedtempo.support.files import write_atomically
from fedtempo.support.json_text import JsonTable
from fedtempo.training.labels import names_of_results
from fedtempo.training.result import Result
from fedtempo.training.view import Run

SCRIPTS = ("draw", "points", "lines", "marks", "numbers", "figures", "setup", "controls", "results", "saving", "page")


def report(
    runs: Sequence[Run],
    *,
    title: str = "FedTempo",
    command: str | None = None,
    sections: Sequence[Section] = (),
    live: JsonTable | None = None,
) -> str:
    """The page as text. `command` runs all of it again; `live` is what a watched run adds to the numbers."""
    runs = [run.drawn() for run in runs]
    drawn = payload(runs, title, sections)
    numbers = {**drawn, **(live or {})}
    style, script = _asset("report.css"), _script()
    connects = "'self'" if live is not None else "'none'"
    policy = (
        f"default-src 'none'; script-src {_source(script)}; style-src {_source(style)}; connect-src {connects}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    only_sections = "" if runs else " hidden"
    added = "".join(section(one, index) for index, one in enumerate(sections))
    table = result_table(runs, [run.name for run in runs]).html()
    return (
        f'<!doctype html><html lang="en" data-live="{"yes" if live is not None else "no"}"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)}</title><link rel="icon" href="data:,"><style>{style}</style></head>'
        f'<body><div class="page">{head(runs, title, live is not None)}'
        f'<div id="controls"{only_sections}></div><main>'
        f'<section id="results"{only_sections}><div id="tiles"></div><div id="table"></div>'
        f"<noscript>{table}<p>The figures of this page are drawn by a script in it; allow scripts to see them.</p>"
        f'</noscript></section>{added}<div id="figures" class="grid-of-figures"{only_sections}></div>'
        f'<div id="setup" class="grid-of-figures"{only_sections}></div>{runs_section(runs, command)}</main>'
        f'{footer(drawn["notes"])}</div><script type="application/json" id="numbers">{as_json(numbers)}</script>'
        f"<script>{script}</script></body></html>\n"
    )


def write_report(
    results: Sequence[Result],
    path: Path,
    labels: Sequence[str] | None = None,
    title: str | None = None,
    *,
    command: str | None = None,
    sections: Sequence[Section] = (),
) -> Path:
    """Write the page about these results and return where it is; results with the same label are seeds of one run."""
    names = labels if labels is not None else names_of_results(results)
    runs = [Run.of(result, name, command) for result, name in zip(results, names, strict=True)]
    named = title or " and ".join(dict.fromkeys(run.name for run in runs)) or "FedTempo"
    return write_page(path, report(runs, title=named, command=command, sections=sections))


def write_page(path: Path, page: str, setting: str = "report") -> Path:
    """Write a page and return where it is; `setting` is what the caller calls the path."""
    return write_atomically(path, page, setting)


def as_json(numbers: object) -> str:
    """JSON for a script element: `</script>` inside a string is escaped, so that it cannot end the element."""
    text = json.dumps(numbers, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _asset(name: str) -> str:
    return (files("fedtempo.report") / "assets" / name).read_text(encoding="utf-8")


@cache
def _script() -> str:
    return '(() => {\n"use strict";\n' + "".join(_asset(f"{name}.js") for name in SCRIPTS) + "})();"


def _source(text: str) -> str:
    """The hash by which a content security policy allows a script or a style sheet."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@shows(Result, "page")
def _page_of(result: Result, path: Path) -> Path:
    return write_report([result], path)
