"""A comparison as a table for a paper or a page, with intervals and tests."""

from __future__ import annotations

from fedtempo.comparison.comparison import Comparison
from fedtempo.comparison.significance import Method
from fedtempo.comparison.tables import paper_table


def markdown(comparison: Comparison, test: Method = "t", digits: int = 3) -> str:
    """A Markdown table; p is of the paired test against the reference, by Holm's correction."""
    return paper_table(comparison, test, digits).markdown()


def latex(comparison: Comparison, test: Method = "t", digits: int = 3) -> str:
    """A LaTeX table for the package booktabs; p is of the paired test against the reference, by Holm's correction."""
    return paper_table(comparison, test, digits).latex()
