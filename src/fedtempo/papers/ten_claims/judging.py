"""Claims with several parts, each judged over all of them from the stored runs, and the table of them.

A claim holds where all of its parts hold, does not hold where one does not, and is equal where all parts are. "Holds"
and "does not hold" survive Holm's correction over all of them. A claim whose stored runs were not a fair contest is not
decided, whatever its numbers are: `unfair` says why, and `hours` what a fair one takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from fedtempo.comparison.significance import holm
from fedtempo.evaluation.over_seeds import LEVEL
from fedtempo.papers.framework.claims import Answer, Rule, Verdict
from fedtempo.papers.framework.counting import judged_outcome
from fedtempo.papers.framework.documents import put_section, read_page
from fedtempo.papers.framework.outcomes import NotRunError, Outcome
from fedtempo.papers.framework.pages import tidy
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.support.files import write_atomically

NAMES = {"feddecay": "FedDecay", "fednar": "FedNAR", "pflego": "PFLEGO", "decaying-k": "Decaying K"}
INDEX, SECTION = "index.md", "ten-claims"
HEAD = (
    "| | the paper says | its number | ours | scale | verdict | why it differs, or what is missing |",
    "|---|---|---|---|---|---|---|",
)
DECIDED = (Answer.HOLDS, Answer.FAILS)
FEW = 4
"""The results of more parts than this are counted, and the one that decides is shown."""


@dataclass(frozen=True)
class Part:
    """One of the comparisons that a claim is about."""

    where: str
    reproduction: Reproduction
    rule: Rule


@dataclass(frozen=True)
class PaperClaim:
    """A claim in the paper's words, and what it takes to judge it."""

    paper: str
    words: str
    section: str
    printed: str
    parts: tuple[Part, ...]
    scale: str
    why: str
    unfair: str = ""
    """Why the stored runs are no fair contest; empty where they are."""
    hours: str = ""
    """What a fair contest takes on one core."""
    margin: str = "a point"


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict on the stored runs."""

    number: int
    claim: PaperClaim
    answer: str
    told: str
    """The numbers."""
    seeds: str


def judged(folder: Path, claims: Sequence[PaperClaim]) -> list[Judged]:
    """Every claim's verdict, from the runs stored below the folder of results."""
    experiments = {one.name: one for claim in claims for one in _experiments(claim)}
    outcomes = {name: judged_outcome(one, folder) for name, one in experiments.items()}
    found = [_verdicts(claim, outcomes) for claim in claims]
    answers = [_together(claim, verdicts) for claim, verdicts in zip(claims, found, strict=True)]
    corrected = holm([p for _, p in answers])
    return [
        Judged(
            number,
            claim,
            _in_words(claim, answer, p, verdicts),
            _numbers(claim, verdicts),
            _seeds(claim, outcomes),
        )
        for number, claim, verdicts, (answer, _), p in zip(count(1), claims, found, answers, corrected, strict=False)
    ]


def _experiments(claim: PaperClaim) -> list[Reproduction]:
    return [*{part.reproduction.name: part.reproduction for part in claim.parts}.values()]


def _verdicts(claim: PaperClaim, outcomes: Mapping[str, Outcome | None]) -> list[Verdict]:
    return [_verdict(part, outcomes[part.reproduction.name]) for part in claim.parts]


def _verdict(part: Part, outcome: Outcome | None) -> Verdict:
    if outcome is None:
        return Verdict(Answer.NOT_RUN, "not run")
    try:
        return part.rule(outcome)
    except NotRunError as error:
        return Verdict(Answer.NOT_RUN, str(error))


def _together(claim: PaperClaim, verdicts: Sequence[Verdict]) -> tuple[Answer, float]:
    """The answer over all parts, and its p; 1 for an answer that is no discovery, 0 for an exact count."""
    answers = {verdict.answer for verdict in verdicts}
    ps = {answer: [_p(one) for one in verdicts if one.answer == answer] for answer in answers}
    if claim.unfair:
        return Answer.UNCLEAR, 1.0
    if Answer.FAILS in answers:
        return Answer.FAILS, min(1.0, len(verdicts) * min(ps[Answer.FAILS]))
    if answers == {Answer.HOLDS}:
        return Answer.HOLDS, max(ps[Answer.HOLDS])
    if answers == {Answer.SAME}:
        return Answer.SAME, 1.0
    open_ended = (Answer.UNBOUNDED, Answer.NOT_RUN, Answer.IMPROVING)
    return next((answer for answer in open_ended if answer in answers), Answer.UNCLEAR), 1.0


def _p(verdict: Verdict) -> float:
    return 0.0 if math.isnan(verdict.p) else verdict.p


def _in_words(claim: PaperClaim, answer: Answer, p: float, verdicts: Sequence[Verdict]) -> str:
    """The verdict; of an open one what is missing, and the hours that it takes."""
    left = f"; {claim.hours}" if claim.hours else ""
    if answer in DECIDED and p < 1 - LEVEL:
        return str(answer)
    if answer == Answer.SAME:
        return f"equal within {claim.margin}"
    if answer == Answer.UNBOUNDED:
        return f"{answer}{left}"
    counted = {answer: sum(one.answer == answer for one in verdicts) for answer in (Answer.NOT_RUN, Answer.IMPROVING)}
    reasons = [f"{number} of {len(verdicts)} parts {what}" for what, number in counted.items() if number]
    if answer in DECIDED:
        reasons.append(f"p = {p:.2f} after correction")
    because = f" ({', '.join(reasons)})" if reasons else ""
    return f"not decided{because}{left}"


def _numbers(claim: PaperClaim, verdicts: Sequence[Verdict]) -> str:
    """Every part's difference; of many parts how many hold, and the one that decides."""
    pairs = [(part.where, one) for part, one in zip(claim.parts, verdicts, strict=True)]
    if len(pairs) <= FEW:
        return "; ".join(f"{where} {one.value or one.answer}".strip() for where, one in pairs)
    there = [(where, one) for where, one in pairs if one.answer != Answer.NOT_RUN]
    if not there:
        return "-"
    holding = sum(one.answer == Answer.HOLDS for _, one in there)
    last = max(there, key=lambda pair: (pair[1].answer == Answer.FAILS, pair[1].answer != Answer.HOLDS, _p(pair[1])))
    return f"{holding} of {len(there)} hold; {last[0]} {last[1].value}"


def _seeds(claim: PaperClaim, outcomes: Mapping[str, Outcome | None]) -> str:
    there = [outcome for outcome in (outcomes[one.name] for one in _experiments(claim)) if outcome is not None]
    if not there:
        return "not run"
    most, fewest = max(one.seeds for one in there), min(one.fewest_seeds for one in there)
    if most == 1:
        return "exact"
    return f"{most} seeds" if fewest == most else f"{fewest} to {most} seeds"


def table(rows: Sequence[Judged]) -> list[str]:
    """The rows as lines of a Markdown table; differences of scores are in points."""
    lines = [*HEAD]
    for row in rows:
        claim = row.claim
        name = f"[{NAMES[claim.paper]}]({claim.paper}.md)"
        why = f"{claim.unfair} {claim.why}".strip()
        cells = (
            f"{row.number}",
            f"{name}: {claim.words} ({claim.section})",
            claim.printed,
            row.told.replace(" points", ""),
            f"{claim.scale}, {row.seeds}",
            f"**{row.answer}**",
            why,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def write_claims(folder: Path, claims: Sequence[PaperClaim]) -> list[Path]:
    """Put the table on the results' first page, and each paper's rows on its own."""
    rows = judged(folder, claims)
    written = []
    for page, own in (
        (INDEX, rows),
        *((f"{paper}.md", [r for r in rows if r.claim.paper == paper]) for paper in NAMES),
    ):
        path = folder / page
        content = "\n".join(table(own)) + "\n"
        write_atomically(path, tidy(put_section(read_page(path, "# Results\n"), SECTION, content, SECTION)))
        written.append(path)
    return written
