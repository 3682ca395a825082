"""The documentation's pages of results: verdicts with a chart for each experiment, everything else behind a link."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from fedtempo.papers.framework.claims import Answer
from fedtempo.papers.framework.figures import svg
from fedtempo.papers.framework.outcomes import Outcome
from fedtempo.papers.framework.pages import is_quick_look, page, seeds_text, tidy, verdicts
from fedtempo.papers.framework.reproduction import OURS, PAPERS, SCALES, Reproduction
from fedtempo.support.files import write_atomically

DETAILS, FIGURES, RUNS = "details", "figures", "runs"
JUDGED = "medium"
"""The scale whose verdicts count, and whose runs are stored."""
MOST_ROWS = 24
"""More verdicts than this are no longer one screen."""


def stored_runs(folder: Path, name: str) -> Path:
    """Where the runs of a reproduction are stored below the folder of the results."""
    return folder / RUNS / f"{name}.json"


def save_into_docs(reproduction: Reproduction, outcome: Outcome, folder: Path, provenance: str) -> Path:
    """Put verdicts and a chart into `folder/PAPER.md`, everything into `folder/details/NAME.md`, figures beside them.

    A section takes the place of the one of the same name, unless that is of the scale whose verdicts count and this one
    is not. What people wrote outside the sections' marks stays. Returns the paper's page.
    """
    figures = _drawn(reproduction, outcome, folder)
    _save_details(reproduction, outcome, folder, provenance, figures)
    path = folder / f"{reproduction.paper}.md"
    text = read_page(path, f"# {PAPERS[reproduction.paper]}\n")
    judged = f"{reproduction.name}-{JUDGED}"
    if outcome.scale == JUDGED or not _has(text, judged):
        mine = f"{reproduction.name}-{outcome.scale}"
        there = [name for name in _sections(reproduction) if _has(text, name)]
        for name in there[1:]:
            text = _replaced(text, name, "")
        text = put_section(text, mine, verdict_section(reproduction, outcome, figures), *there[:1])
    write_atomically(path, tidy(text))
    return path


def verdict_section(reproduction: Reproduction, outcome: Outcome, figures: Mapping[str, str]) -> str:
    """One chart and a link to everything else; of our own questions the verdicts too.

    What a paper says is judged on the first page.
    """
    lines = [f"## {reproduction.source}: {reproduction.title}", ""]
    link = f"{DETAILS}/{reproduction.name}.md"
    if is_quick_look(reproduction, outcome.scale):
        return tidy("\n".join([*lines, f"Not judged yet. [A quick look]({link}) at untuned, short runs."]))
    if reproduction.paper in OURS:
        lines += _verdict_lines(reproduction, outcome, link)
    shown = [reproduction.chart] if reproduction.chart else [*figures][:1]
    lines += ["", *(f"![{name}]({figures[name]})" for name in shown), ""]
    command = f"fedtempo reproduce {reproduction.name} --scale {outcome.scale}"
    seeds = "Exact" if outcome.seeds == 1 else f"{seeds_text(outcome)} seeds"
    lines.append(f"{seeds}, `{command}`: [table, settings, tuning, all numbers]({link}).")
    return tidy("\n".join(lines))


def _verdict_lines(reproduction: Reproduction, outcome: Outcome, link: str) -> list[str]:
    """A row for every claim; of very many, a row for those that say something, and a count of the others."""
    found = verdicts(reproduction, outcome)
    telling = {text: one for text, one in found.items() if one.answer in (Answer.HOLDS, Answer.FAILS)}
    shown = found if len(found) <= MOST_ROWS else telling
    lines = ["| we ask | verdict | what decides |", "|---|---|---|"]
    lines += [f"| {text} | **{verdict.answer}** | {verdict.numbers} |" for text, verdict in shown.items()]
    others = Counter(str(verdict.answer) for text, verdict in found.items() if text not in shown)
    if not others:
        return lines
    counts = ", ".join(f"{answer} {count}" for answer, count in others.items())
    return [*lines, "", f"Of the other {others.total()} of {len(found)} questions: {counts}. [All of them]({link})."]


def _save_details(
    reproduction: Reproduction, outcome: Outcome, folder: Path, provenance: str, figures: Mapping[str, str]
) -> None:
    path = folder / DETAILS / f"{reproduction.name}.md"
    back = f"[What the verdicts are](../{reproduction.paper}.md)"
    text = read_page(path, f"# {reproduction.name}\n\n{back}.\n")
    quick = f"{reproduction.name}-small"
    if outcome.scale == JUDGED and _has(text, quick):
        text = _replaced(text, quick, "")
        for figure in reproduction.figures:
            (folder / FIGURES / f"{quick}-{figure.name}.svg").unlink(missing_ok=True)
    beside = {name: f"../{place}" for name, place in figures.items()}
    mine = f"{reproduction.name}-{outcome.scale}"
    write_atomically(path, tidy(put_section(text, mine, page(reproduction, outcome, provenance, beside), mine)))


def _drawn(reproduction: Reproduction, outcome: Outcome, folder: Path) -> dict[str, str]:
    """Write the figures; their places below the folder."""
    places = {}
    for figure in reproduction.figures:
        places[figure.name] = f"{FIGURES}/{reproduction.name}-{outcome.scale}-{figure.name}.svg"
        write_atomically(folder / places[figure.name], svg(figure, outcome, reproduction.reported))
    return places


def _sections(reproduction: Reproduction) -> list[str]:
    return [f"{reproduction.name}-{scale}" for scale in SCALES]


def read_page(path: Path, otherwise: str) -> str:
    """The page's text, or what a new page starts with."""
    return path.read_text(encoding="utf-8") if path.exists() else otherwise


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def _has(text: str, name: str) -> bool:
    return _marks(name)[0] in text


def put_section(text: str, name: str, content: str, *instead_of: str) -> str:
    """The text with a marked section in the place of another one, or at its end."""
    begin, end = _marks(name)
    marked = f"{begin}\n{content}{end}"
    for other in instead_of:
        if _has(text, other):
            return _replaced(text, other, marked)
    return f"{text.rstrip()}\n\n{marked}\n"


def _replaced(text: str, name: str, marked: str) -> str:
    """The text with the section of this name replaced."""
    begin, end = _marks(name)
    start, rest = text.split(begin, 1)
    return start + marked + rest.split(end, 1)[1]
