"""How many claims are decided, counted from the stored runs, and the results' first page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path

from fedtempo.papers.framework.claims import Answer
from fedtempo.papers.framework.documents import JUDGED, put_section, read_page, stored_runs
from fedtempo.papers.framework.outcomes import Outcome
from fedtempo.papers.framework.pages import tidy, verdicts
from fedtempo.papers.framework.reproduction import OURS, PAPERS, Reproduction
from fedtempo.papers.framework.stored_outcome import stored_outcome
from fedtempo.support.files import write_atomically

INDEX, SECTION = "index.md", "verdicts"


def judged_outcome(reproduction: Reproduction, folder: Path) -> Outcome | None:
    """What the runs stored below the folder of results say; None where no label has run on enough seeds."""
    return stored_outcome(reproduction, JUDGED, stored_runs(folder, reproduction.name))


def answers(reproduction: Reproduction, folder: Path) -> Counter[Answer]:
    """How often each answer is given; every claim is "not run" where nothing is stored."""
    outcome = judged_outcome(reproduction, folder)
    if outcome is None:
        return Counter({Answer.NOT_RUN: len(reproduction.claims)})
    return Counter(verdict.answer for verdict in verdicts(reproduction, outcome).values())


def count_table(reproductions: Collection[Reproduction], folder: Path) -> list[str]:
    """The counts by paper, as lines of a Markdown table, and what share of the judged claims of papers is open."""
    shown = tuple(Answer)
    lines = [f"| | claims | {' | '.join(shown)} |", f"|---|---:|{'---:|' * len(shown)}"]
    # Of our own questions those that were run: there is no paper that says how many there are.
    asked = [one for one in reproductions if one.paper not in OURS or stored_runs(folder, one.name).exists()]
    given = {one.name: answers(one, folder) for one in asked}
    papers = dict.fromkeys(one.paper for one in asked)
    total: Counter[Answer] = Counter()
    for paper in sorted(papers, key=lambda name: (name in OURS, [*PAPERS].index(name))):
        counted = sum((given[one.name] for one in asked if one.paper == paper), Counter[Answer]())
        if paper not in OURS:
            total += counted
        name = f"[{paper}]({paper}.md)" if (folder / f"{paper}.md").exists() else paper
        lines.append(_row(f"{name}{' (our questions)' if paper in OURS else ''}", counted))
    lines.append(_row("**the four papers**", total))
    judged = total.total() - total[Answer.NOT_RUN]
    unclear, improving = (
        f"{100 * total[answer] / judged:.0f} %" if judged else "none" for answer in (Answer.UNCLEAR, Answer.IMPROVING)
    )
    open_ended = f"{unclear} can't be told, and {improving} are open because a run still improves"
    lines += ["", f"Of the papers' {judged} claims that were judged, {open_ended}."]
    left = [one for one in asked if given[one.name][Answer.NOT_RUN]]
    minutes = ", ".join(f"`{one.name}` {one.scales[JUDGED].minutes:.0f}" for one in left)
    return [
        *lines,
        *(["", f"Not run yet, or not all of it, with the minutes of two cores: {minutes}."] if left else []),
    ]


def _row(name: str, counted: Counter[Answer]) -> str:
    return f"| {name} | {counted.total()} | {' | '.join(str(counted[answer]) for answer in Answer)} |"


def write_index(reproductions: Collection[Reproduction], folder: Path) -> Path:
    """Put the counts into the results' first page, in the place of the ones that it has."""
    path = folder / INDEX
    content = "\n".join(count_table(reproductions, folder)) + "\n"
    write_atomically(path, tidy(put_section(read_page(path, "# Results\n"), SECTION, content, SECTION)))
    return path
