"""The parts of a report page that are plain text: the head, added sections, what was run, the footer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import groupby

from fedtempo.report.sections import Cell, Section
from fedtempo.training.view import Run

LONG_TITLE = 90
MOST_LISTED = 8
"""Runs that are listed line by line."""
SHORT = 8
"""Digits of a digest in the matrix of more runs."""


def head(runs: Sequence[Run], title: str, live: bool) -> str:
    """The title, and in one line each what was run, when and with what."""
    facts = "".join(f"<li>{name} <b>{escape(text)}</b></li>" for name, text in _headline(runs))
    size = ' class="long"' if len(title) > LONG_TITLE else ""
    state = '<div id="live" role="status"><span></span><progress max="1" value="0"></progress></div>' if live else ""
    return (
        '<header class="top"><div class="brand"><span class="mark">FedTempo</span>'
        '<button id="theme" class="quiet" type="button" hidden>Light or dark</button></div>'
        f'<h1{size}>{escape(title)}</h1><ul class="facts">{facts}</ul>{state}</header>'
    )


def _headline(runs: Sequence[Run]) -> list[tuple[str, str]]:
    titles = dict.fromkeys(run.picture.title for run in runs if run.picture is not None)
    seeds = sorted({run.seed for run in runs if run.seed is not None})
    rounds = sorted({run.total or len(run.history) for run in runs})
    versions = _common([run.versions for run in runs])
    facts = [
        ("data", "; ".join(titles)),
        ("rounds", " to ".join(dict.fromkeys((str(rounds[0]), str(rounds[-1])))) if rounds else ""),
        ("seed" if len(seeds) == 1 else "seeds", ", ".join(map(str, seeds))),
        ("runs", str(len(runs)) if len(runs) > 1 else ""),
        ("date", max((run.finished or "" for run in runs), default="").replace("T", " ").replace("+00:00", " UTC")),
        ("privacy", "; ".join(dict.fromkeys(run.facts["privacy"] for run in runs if "privacy" in run.facts))),
        *((name, versions[name]) for name in ("fedtempo", "torch") if name in versions),
    ]
    return [(name, text) for name, text in facts if text]


def section(one: Section, index: int) -> str:
    """A section that the caller added; the script draws its figure."""
    text = "".join(f"<p>{escape(part)}</p>" for part in one.text.split("\n\n") if part.strip())
    table = f'<div class="scroll">{_table(one.table.columns, one.table.rows)}</div>' if one.table else ""
    figure = (
        f'<div class="plot" data-section="{index}" data-heading="{escape(one.heading)}"></div>' if one.figure else ""
    )
    link = f'<a class="anchor" href="#section-{index + 1}" title="A link to this section">#</a>'
    return (
        f'<section class="text" id="section-{index + 1}"><h2>{escape(one.heading)} {link}</h2>{text}{table}{figure}'
        "</section>"
    )


def runs_section(runs: Sequence[Run], command: str | None) -> str:
    """Settings, the list of runs with their digests, and how to run them again; nothing for a page without runs."""
    if not runs:
        return ""
    shared = _common([run.facts for run in runs])
    names = dict.fromkeys(name for run in runs for name in run.facts if name not in (*shared, "seed"))
    differing = "".join(f"<h3>{escape(name)}</h3>{_list(_by_run(runs, name))}" for name in names)
    return (
        f'<section class="text" id="what"><h2>What was run</h2>{_list(shared.items())}{differing}{_runs_table(runs)}'
        f"<h2>Run it again</h2>{_again(runs, command)}</section>"
    )


def _by_run(runs: Sequence[Run], fact: str) -> list[tuple[str, str]]:
    """A fact that differs, once for each label or each seed where these decide it, else run by run."""
    for key in (lambda run: run.name, lambda run: f"seed {run.seed}", lambda run: f"{run.name}, seed {run.seed}"):
        values: dict[str, set[str]] = {}
        for run in runs:
            values.setdefault(key(run), set()).add(run.facts.get(fact, "-"))
        if all(len(own) == 1 for own in values.values()):
            return [(name, next(iter(own))) for name, own in values.items()]
    return [(run.name, run.facts.get(fact, "-")) for run in runs]


def _runs_matrix(runs: Sequence[Run]) -> str:
    """Many runs: a row for each label, a column for each seed, short digests; folded, and not printed."""
    seeds = sorted({run.seed for run in runs if run.seed is not None})
    cells: dict[str, dict[int | None, list[str]]] = {}
    for index, run in enumerate(runs):
        digest = run.digest or "not finished"
        box = f'<input type="checkbox" checked data-run="{index}" aria-label="{escape(run.name)}, seed {run.seed}">'
        text = f'<label title="{escape(digest)}">{box} <code>{escape(digest[:SHORT])}</code></label>'
        cells.setdefault(run.name, {}).setdefault(run.seed, []).append(text)
    columns = [*seeds, *([None] if any(run.seed is None for run in runs) else [])]
    heads = "".join(f"<th>{'' if seed is None else f'seed {seed}'}</th>" for seed in columns)
    rows = [(name, [" ".join(own.get(seed, [])) for seed in columns]) for name, own in cells.items()]
    body = "".join(f"<tr><td>{escape(name)}</td><td>{'</td><td>'.join(own)}</td></tr>" for name, own in rows)
    table = f'<table class="plain"><thead><tr><th>run</th>{heads}</tr></thead><tbody>{body}</tbody></table>'
    note = "Untick a run to leave it out. The same digest is the same run, bit for bit; point at one to see all of it."
    return (
        f'<details class="runs"><summary>{len(runs)} runs, with their digests</summary><p>{note}</p>'
        f'<div class="scroll">{table}</div></details>'
    )


def _runs_table(runs: Sequence[Run]) -> str:
    if len(runs) > MOST_LISTED:
        return f"<h2>Runs</h2>{_runs_matrix(runs)}"
    rows = "".join(
        f'<tr><td><label><input type="checkbox" checked data-run="{index}"> {escape(run.name)}</label></td>'
        f"<td>{'' if run.seed is None else run.seed}</td><td>{len(run.history)}</td><td>{run.seconds:.1f} s</td>"
        f'<td class="digest"><code>{escape(run.digest or "not finished")}</code></td></tr>'
        for index, run in enumerate(runs)
    )
    heads = "".join(f"<th>{name}</th>" for name in ("run (untick to leave it out)", "seed", "rounds", "time"))
    heads += '<th class="digest">digest</th>'
    note = "<p>The digest is a hash of the final state: the same digest is the same run, bit for bit.</p>"
    table = f'<table class="plain"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
    return f'<h2>Runs</h2>{note}<div class="scroll">{table}</div>'


def _again(runs: Sequence[Run], command: str | None) -> str:
    if command is not None:
        return f'<pre class="command"><code>{escape(command)}</code></pre>'
    parts = []
    for (line, file), group in groupby(runs, key=lambda run: (run.command, run.file)):
        names = ", ".join(dict.fromkeys(escape(run.name) for run in group))
        parts.append(f"<p>{names}</p>" if len(runs) > 1 else "")
        if line is None:
            parts.append("<p>Made from Python: call <code>fedtempo.run</code> with the settings above.</p>")
        else:
            parts.append(f'<pre class="command"><code>{escape(line)}</code></pre>')
        if file is not None:
            parts.append(
                "<details open><summary>The file it reads, every default filled in: save it as experiment.toml"
                f'</summary><pre class="command"><code>{escape(file)}</code></pre></details>'
            )
    return "".join(parts)


def footer(notes: Iterable[str]) -> str:
    """What the page leaves out."""
    return f"<footer><p>{escape(' '.join(notes))} One file, no network: made by FedTempo.</p></footer>"


def _common(each: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Entries that are the same everywhere."""
    first = each[0] if each else {}
    return {key: value for key, value in first.items() if all(other.get(key) == value for other in each)}


def _list(entries: Iterable[tuple[str, str]]) -> str:
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in entries)
    return f"<dl>{items}</dl>" if items else ""


def _table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    # Numbers stand under each other, to the right. Words begin at the left and may take several lines.
    words = [any(_is_words(row[place]) for row in rows) for place in range(len(columns))]
    kinds = [' class="words"' if worded else "" for worded in words]
    heads = "".join(f"<th{kind}>{escape(column)}</th>" for kind, column in zip(kinds, columns, strict=True))
    cells = ([f"<td{k}>{escape(_cell(cell))}</td>" for k, cell in zip(kinds, row, strict=True)] for row in rows)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
    return f'<table class="plain"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'


def _is_words(value: Cell) -> bool:
    return isinstance(value, str) and value[:1].isalpha()


def _cell(value: Cell) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
