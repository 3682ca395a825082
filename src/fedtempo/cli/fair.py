"""`fedtempo compare --tune`: the fair comparison from experiment files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedtempo.comparison.entrants import entrants_of_files, parse_algorithms
from fedtempo.config.pairs import pairs_of
from fedtempo.errors import ConfigError
from fedtempo.study import (
    PLAN,
    Budget,
    FairComparison,
    compare_fairly,
    first_values,
    from_entrants,
    make_plan,
)
from fedtempo.study.driver import Observe
from fedtempo.support.terminal import Terminal, say
from fedtempo.tuning.space import Dimension, dimensions_of, read_tables

OUT = Path("compared")


@dataclass(frozen=True)
class FairOptions:
    """What the command line says about a fair comparison."""

    paths: Sequence[Path]
    algorithms: str | None
    only: bool
    overrides: Sequence[str]
    ranges: Sequence[str]
    claims: Sequence[str]
    reference: str | None
    target: float | None
    redraw: bool
    budget: Budget
    out: Path
    workers: int
    allow_code: Sequence[str] = ()


def run_fair(options: FairOptions, quiet: bool) -> FairComparison:
    """Plan, say so, run and return what was found."""
    ranges = _ranges(options)
    rates = first_values(ranges)
    entrants = entrants_of_files(
        options.paths, options.overrides, options.algorithms, options.only, rates, options.allow_code
    )
    fixed = {} if options.algorithms is None else {label: own for label, _, own in parse_algorithms(options.algorithms)}
    tunables = from_entrants(entrants, fixed, ranges, options.redraw)
    plan = make_plan(
        tunables,
        options.budget,
        first_seed=entrants[0].file.seed,
        claims=[_claim(text) for text in options.claims] or None,
        reference=options.reference,
        target=options.target,
    )

    told = told_by(options.out / PLAN, quiet)
    try:
        return compare_fairly(tunables, plan, options.out, workers=options.workers, observe=told)
    except KeyboardInterrupt:
        say(f"fedtempo: go on with the same command (what is done is in {options.out})", error=True)
        raise


def told_by(plan: Path, quiet: bool) -> Observe:
    """Says where the plan is and which runs have ended."""
    told = quiet

    def observe(done: int, total: int, name: str) -> None:
        nonlocal told
        if not told:  # only now: a folder with another plan has been refused by then
            say(f"the plan is in {plan}", error=True)
            told = True
        if not quiet:
            say(f"{done}/{total}: {name}", error=True)

    return observe


def show_fair(found: FairComparison, out: Path) -> None:
    """The plan, the tables and the answers, for a terminal."""
    console = Terminal()
    for line in found.plan.in_words():
        say(line)
    for table in found.tables():
        console.print()
        console.print(table.terminal(console.width))
    for one in found.rulings:
        say(str(one))
    for line in found.undecided:
        say(line)
    for note in found.notes:
        say(f"note: {note}")
    console.print(f"The plan, all runs and the report: {out}", soft_wrap=True)


def _ranges(options: FairOptions) -> dict[str, Dimension]:
    """The first file's `[tune]` table, and the ranges of the command line on top."""
    given = pairs_of(options.ranges, "a range", "FIELD={ log = [0.01, 1.0] }")
    return dimensions_of(read_tables(options.paths[0])[1]) | dimensions_of(given)


def _claim(text: str) -> tuple[str, str]:
    better, sign, other = (part.strip() for part in text.partition(" > "))
    if not sign or not better or not other:
        raise ConfigError(f"a claim must be written 'LABEL > LABEL'. Got {text!r}.")
    return better, other
