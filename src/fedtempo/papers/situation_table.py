"""Which method when, as a table: what won, by how much, set to what and at what cost, from stored runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedtempo.comparison.decide import no_difference
from fedtempo.comparison.significance import paired_t
from fedtempo.evaluation.over_seeds import LEVEL
from fedtempo.papers.framework.counting import judged_outcome
from fedtempo.papers.framework.documents import DETAILS, put_section, read_page
from fedtempo.papers.framework.outcomes import Outcome
from fedtempo.papers.framework.pages import tidy
from fedtempo.papers.situations import SITUATIONS, Situation
from fedtempo.support.files import write_atomically

PAGE, SECTION = "which-method-when.md", "situations"
FULL = f"{DETAILS}/{PAGE}"
"""The table with every situation, below the folder of results."""
DECIDED = ("sure", "likely", "no difference")
"""What the last column of a decided row begins with."""
NAMED = 4
"""So many that are level with the best are named; more are counted."""
HEAD = ("| when | what won | against | by how much | set to | cost | how sure |", "|---|---|---|---|---|---|---|")


def situation_table(folder: Path, situations: Sequence[Situation] = SITUATIONS, links: str = "") -> list[str]:
    """The Markdown table, from the runs stored below the folder of results; then what could not be said yet.

    `links` stands before the names of the pages that rows link to.
    """
    rows, waiting = _rows(folder, situations, links)
    return [*HEAD, *(row for _, row in rows), *_not_run(waiting)]


def short_table(folder: Path, situations: Sequence[Situation] = SITUATIONS, links: str = "") -> list[str]:
    """The rows that a choice can rest on: of the situations that may be in it, those that are decided."""
    rows, _ = _rows(folder, [one for one in situations if one.short], links)
    decided = [row for _, row in rows if row.rpartition(" | ")[2].startswith(DECIDED)]
    return [*HEAD, *decided]


def _rows(
    folder: Path, situations: Sequence[Situation], links: str
) -> tuple[list[tuple[Situation, str]], dict[str, str]]:
    """Each situation with its row; and by name the experiments that are not stored, with their first situation."""
    outcomes: dict[str, Outcome | None] = {}
    rows: list[tuple[Situation, str]] = []
    waiting: dict[str, str] = {}
    for one in situations:
        name = one.experiment.name
        if name not in outcomes:
            outcomes[name] = judged_outcome(one.experiment, folder)
        outcome = outcomes[name]
        if outcome is None or not set(one.contestants) & set(outcome.labels) or one.reference not in outcome.labels:
            waiting.setdefault(name, one.when)
        else:
            rows.append((one, _row(one, outcome, links)))
    return rows, waiting


def _not_run(waiting: Mapping[str, str]) -> list[str]:
    missing = "; ".join(f"`{name}` ({when}, ...)" for name, when in waiting.items())
    return ["", f"Not run yet: {missing}."] if waiting else []


def _row(one: Situation, found: Outcome, links: str) -> str:
    there = [name for name in one.contestants if name in found.labels]
    # The best of several is the best on the same seeds; one with more of them could have had the easier ones.
    outcome = found.on_common_seeds({*there, one.reference})
    best = max(there, key=lambda name: outcome.mean(name, one.column))
    against = one.reference if best != one.reference else _second(one, outcome, there, best)
    difference = outcome.difference(best, against, one.column)
    mean, low, high = (bound / one.point for bound in (difference.mean, difference.low, difference.high))
    points = f"{mean:+.1f} points [{low:+.1f}, {high:+.1f}]"
    page = f"[{outcome.seeds} seeds]({links}{one.experiment.name}.md)"
    cells = [
        one.when,
        _won(one, outcome, there, best),
        _short(one, against),
        points,
        _settings(one, best, outcome),
        _cost(one, outcome, best, against),
    ]
    return f"| {' | '.join(cells)} | {_sure(one, outcome, best, against, len(there))}, {page} |"


def _won(one: Situation, outcome: Outcome, there: Sequence[str], best: str) -> str:
    """The best, with who can't be told from it; nobody where that is everybody."""
    level = _level(one, outcome, there, best)
    if len(level) == len(there) - 1:
        return f"nobody; {_short(one, best)} has the highest mean"
    names = ", ".join(_short(one, name) for name in level) if len(level) <= NAMED else f"{len(level)} of {len(there)}"
    return _short(one, best) + (f" (level: {names})" if level else "")


def _short(one: Situation, name: str) -> str:
    """A label without the words that it shares with all others."""
    if name in one.names:
        return one.names[name]
    for between in (": ", ", "):
        start, mark, _ = name.partition(between)
        if mark and all(other.startswith(start + mark) for other in one.contestants):
            name = name.removeprefix(start + mark)
    _, mark, end = name.rpartition(", ")
    if mark and all(other.endswith(mark + end) for other in one.contestants):
        name = name.removesuffix(mark + end)
    return name


def _level(one: Situation, outcome: Outcome, there: Sequence[str], best: str) -> list[str]:
    """Who cannot be told from the best."""
    others = [name for name in there if name != best]
    return [name for name in others if outcome.difference(best, name, one.column).low <= 0]


def _second(one: Situation, outcome: Outcome, there: Sequence[str], best: str) -> str:
    return max((name for name in there if name != best), key=lambda name: outcome.mean(name, one.column))


def _settings(one: Situation, name: str, outcome: Outcome) -> str:
    """The rate that tuning chose for the label, or for the one whose rate it takes."""
    if one.names:
        return "a rate for each"
    tuning = one.experiment.scales[outcome.scale].tuning
    contestants = {} if tuning is None else tuning.contestants
    shared = [who for who, contestant in contestants.items() if name in (contestant.label, *contestant.also)]
    choice = next((outcome.choices[who] for who in (name, *shared) if who in outcome.choices), None)
    if choice is None or tuning is None:
        return "-"
    return f"rate {choice.value:g}{'' if choice.bounded(tuning.tie) else ' (no bound)'}"


def _cost(one: Situation, outcome: Outcome, best: str, against: str) -> str:
    """What the winner spends, of what the other one does."""
    shares: Mapping[str, float] = {
        cost: outcome.mean(best, cost) / outcome.mean(against, cost) for cost in one.costs if cost in outcome.columns
    }
    return (
        ", ".join(f"{share:.2f} of the {one.experiment.columns[cost].heading}" for cost, share in shares.items())
        or f"the same {one.equal}"
    )


def _sure(one: Situation, outcome: Outcome, best: str, against: str, contestants: int) -> str:
    """How sure the lead is; `sure` is what Bonferroni's correction for the row's contestants leaves.

    The best of many is ahead by chance more often than one that was named before.
    """
    difference = outcome.difference(best, against, one.column)
    # A lead of a run that still improves can only grow; one over such a run may be lost.
    compared = (against,) if difference.low > 0 and outcome.training_raises(one.column) else (best, against)
    if any(outcome.still_improving(name, one.column) is not None for name in compared):
        return "not converged"
    if outcome.without_bound(one.column, *(compared if outcome.tuning_raises(one.column) else (best, against))):
        return "rate not bounded"
    if difference.low > 0:
        p = paired_t(outcome.differences(best, against, one.column))
        word = "sure" if p * (contestants - 1) < 1 - LEVEL else "likely"
        return f"{word}, but less than a point" if difference.high < one.point else word
    return "no difference" if no_difference(difference.low, difference.high, one.point) else "not decided"


def write_situations(page: Path, results: Path) -> None:
    """Put the short table into the page and the full one into the details, each in the place of the one that it has."""
    short = "\n".join(short_table(results, links=f"{results.name}/{DETAILS}/")) + "\n"
    write_atomically(page, tidy(put_section(read_page(page, "# Which method when\n"), SECTION, short, SECTION)))
    full, every = results / FULL, "\n".join(situation_table(results)) + "\n"
    title = f"# Which method when: every situation\n\n[What the columns mean](../../{PAGE}).\n"
    write_atomically(full, tidy(put_section(read_page(full, title), SECTION, every, SECTION)))
