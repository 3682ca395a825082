"""A comparison as a table for a paper or a page: LaTeX and Markdown, with intervals and tests.

Bold marks what cannot be told from the best of a column.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from fedtempo.comparison.comparison import Comparison
from fedtempo.comparison.significance import Method, PairedTest, paired_tests, smallest_p
from fedtempo.evaluation.over_seeds import Estimate

KINDS = ("existing", "new")
PARTS = (("before", "mean", "before"), ("after", "mean", "after"), ("after", "bottom_decile", "bottom decile"))
SPECIAL = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
}


class Cell(NamedTuple):
    """A number as it is printed."""

    value: str
    half: str = ""
    best: bool = False


def markdown(comparison: Comparison, test: Method = "t", digits: int = 3) -> str:
    """A Markdown table; p is of the paired test against the reference, by Holm's correction."""
    heads, rows = _table(comparison, test, digits)
    lines = [f"| {' | '.join(['', *heads])} |", f"|---|{'---:|' * len(heads)}"]
    for label, cells in rows:
        shown = [
            f"**{cell.value}**{_half(cell, ' ± ')}" if cell.best else cell.value + _half(cell, " ± ") for cell in cells
        ]
        lines.append(f"| {' | '.join([label.replace('|', chr(92) + '|'), *shown])} |")
    return "\n".join([*lines, "", caption(comparison, test), ""])


def latex(comparison: Comparison, test: Method = "t", digits: int = 3) -> str:
    """A LaTeX table for the package booktabs; p is of the paired test against the reference, by Holm's correction."""
    heads, rows = _table(comparison, test, digits)
    body = [f"{escaped(label)} & {' & '.join(_latex(cell) for cell in cells)} \\\\" for label, cells in rows]
    return "\n".join(
        [
            "% needs \\usepackage{booktabs}",
            f"\\begin{{tabular}}{{l{'r' * len(heads)}}}",
            "\\toprule",
            f" & {' & '.join(map(escaped, heads))} \\\\",
            "\\midrule",
            *body,
            "\\bottomrule",
            "\\end{tabular}",
            f"% {caption(comparison, test)}",
            "",
        ]
    )


def caption(comparison: Comparison, test: Method = "t") -> str:
    """What the numbers are, in words."""
    seeds = sorted({len(line.seeds) for line in comparison.lines})
    spread = (
        f", mean ± half of Student's 95 % interval over {' to '.join(map(str, seeds))} seeds" if max(seeds) > 1 else ""
    )
    lower = ", lower is better" if comparison.lower_is_better else ""
    bold = "; bold: what cannot be told from the best of a column" if len(comparison.lines) > 1 else ""
    said = f"{comparison.metric} on the {comparison.part} part{lower}{spread}{bold}."
    tests = [one for one in paired_tests(comparison, test) if not math.isnan(one.p)]
    if not tests:
        return said
    methods = " and ".join(sorted({_in_words(one.method) for one in tests}))
    said += f" p: {methods} against {comparison.reference}, two-sided, Holm-corrected over {len(tests)} tests."
    floor = smallest_p(tests)
    return said if floor is None else f"{said} With {floor[0]} seeds an uncorrected p is at least {floor[1]:.3g}."


def escaped(text: str) -> str:
    """Text in which LaTeX sees no commands."""
    return "".join(SPECIAL.get(letter, letter) for letter in text)


def _in_words(method: str) -> str:
    return "paired t test" if method == "t" else "exact sign-flip test"


def _table(comparison: Comparison, test: Method, digits: int) -> tuple[list[str], list[tuple[str, list[Cell]]]]:
    tests = {(one.label, one.group): one for one in paired_tests(comparison, test)}
    heads: list[str] = []
    columns: list[list[Cell]] = []
    for kind in KINDS:
        if not any(f"{kind}_after" in line.scores for line in comparison.lines):
            continue
        for when, statistic, head in PARTS:
            group = f"{kind}_{when}"
            found = [line.scores.get(group, {}).get(statistic) for line in comparison.lines]
            heads.append(f"{kind}, {comparison.decile(kind) if statistic == 'bottom_decile' else head}")
            columns.append(_column(found, comparison.level(group, statistic), digits))
        if any(not math.isnan(one.p) for one in tests.values()):
            heads.append(f"{kind}, p")
            columns.append([_p(tests.get((line.label, f"{kind}_after"))) for line in comparison.lines])
    labels = [line.label for line in comparison.lines]
    return heads, [(label, [column[row] for column in columns]) for row, label in enumerate(labels)]


def _column(found: Sequence[Estimate | None], level: Sequence[bool], digits: int) -> list[Cell]:
    """Numbers that cannot be told from the best one are bold."""
    cells = []
    for one, best in zip(found, level, strict=True):
        value = "-" if one is None or math.isnan(one.value) else f"{one.value:.{digits}f}"
        half = "" if one is None or math.isnan(one.high) else f"{one.high - one.value:.{digits}f}"
        cells.append(Cell(value, half, best and len(found) > 1))
    return cells


def _p(test: PairedTest | None) -> Cell:
    if test is None or math.isnan(test.corrected):
        return Cell("-")
    return Cell("<0.001" if test.corrected < 0.001 else f"{test.corrected:.3f}")


def _half(cell: Cell, sign: str) -> str:
    return f"{sign}{cell.half}" if cell.half else ""


def _latex(cell: Cell) -> str:
    if cell.value == "-":
        return "--"
    value = cell.value.replace("<", "{<}")
    number = f"\\mathbf{{{value}}}" if cell.best else value
    half = _half(cell, " \\pm ")
    return f"${number}{half}$"
