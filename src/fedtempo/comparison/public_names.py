"""Every public name of comparisons. `fedtempo.comparison` hands them out when they are first asked for."""

from fedtempo.comparison.comparison import Comparison, Difference, Line, compare_runs
from fedtempo.comparison.entrants import Entrant, entrants_of, stored_result
from fedtempo.comparison.figures import plot, write_figures
from fedtempo.comparison.protocol import labels_of
from fedtempo.comparison.publish import latex, markdown
from fedtempo.comparison.significance import Method, PairedTest, paired_tests, tests_in_words
from fedtempo.comparison.tables import paper_table, table_of, tables_of
from fedtempo.evaluation.over_seeds import Estimate

__all__ = [
    "Comparison",
    "Difference",
    "Entrant",
    "Estimate",
    "Line",
    "Method",
    "PairedTest",
    "compare_runs",
    "entrants_of",
    "labels_of",
    "latex",
    "markdown",
    "paired_tests",
    "paper_table",
    "plot",
    "stored_result",
    "table_of",
    "tables_of",
    "tests_in_words",
    "write_figures",
]
