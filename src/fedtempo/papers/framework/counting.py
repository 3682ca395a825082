"""How many of our own questions are decided, counted from the stored runs, for the results' first page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path

from fedtempo.papers.framework.claims import Answer
from fedtempo.papers.framework.documents import JUDGED, put_section, read_page, stored_runs
from fedtempo.papers.framework.outcomes import Outcome
from fedtempo.papers.framework.pages import tidy
from fedtempo.papers.framework.reproduction import OURS, PAPERS, Reproduction
from fedtempo.papers.framework.stored_outcome import stored_outcome
from fedtempo.support.files import write_atomically

INDEX, SECTION = "index.md", "questions"


def judged_outcome(reproduction: Reproduction, folder: Path) -> Outcome | None:
    """What the runs stored below the folder of results say; None where no label has run on enough seeds."""
    return stored_outcome(reproduction, JUDGED, stored_runs(folder, reproduction.name))


def answers(reproduction: Reproduction, folder: Path) -> Counter[Answer]:
    """How often each answer is given to our own questions; all are "not run" where nothing is stored."""
    asked = [claim for claim in reproduction.claims if not claim.section]
    outcome = judged_outcome(reproduction, folder)
    if outcome is None:
        return Counter({Answer.NOT_RUN: len(asked)})
    return Counter(claim.judge(outcome).answer for claim in asked)


def question_table(reproductions: Collection[Reproduction], folder: Path) -> list[str]:
    """How many of our own questions are decided, page by page, as lines of a Markdown table."""
    shown = tuple(Answer)
    lines = [f"| we ask about | questions | {' | '.join(shown)} |", f"|---|---:|{'---:|' * len(shown)}"]
    by_page: dict[str, Counter[Answer]] = {}
    for one in reproductions:
        # Of pages that are ours alone, those that were run: no paper says how many there are.
        if one.paper not in OURS or stored_runs(folder, one.name).exists():
            by_page[one.paper] = by_page.get(one.paper, Counter()) + answers(one, folder)
    for page in sorted(by_page, key=lambda name: (name not in OURS, [*PAPERS].index(name))):
        counted = by_page[page]
        name = f"[{page}]({page}.md)" if (folder / f"{page}.md").exists() else page
        lines.append(f"| {name} | {counted.total()} | {' | '.join(str(counted[answer]) for answer in shown)} |")
    return lines


def write_index(reproductions: Collection[Reproduction], folder: Path) -> Path:
    """Put the table of our questions into the results' first page, in the place of the one that it has."""
    path = folder / INDEX
    content = "\n".join(question_table(reproductions, folder)) + "\n"
    write_atomically(path, tidy(put_section(read_page(path, "# Results\n"), SECTION, content, SECTION)))
    return path
