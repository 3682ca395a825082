"""Tables as comma-separated values for a spreadsheet, which would carry out what begins like a formula.

Names of users, columns and algorithms are other people's text: `=cmd|'/C calc'!A0` starts a program in some
spreadsheets. Text that one would carry out gets an apostrophe in front, and control characters are written out.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TextIO

from fedtempo.support.printable import printable

_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)")


def csv_cell(value: object) -> object:
    r"""What stands in a cell for this value; numbers are as they are.

    >>> csv_cell("=SUM(A1)"), csv_cell("a\x1b[2J\nb"), csv_cell("-1.5"), csv_cell(3)
    ("'=SUM(A1)", 'a\\x1b[2J\\nb', '-1.5', 3)
    """
    if not isinstance(value, str):
        return value
    text = printable(value).replace("\n", "\\n").replace("\t", "\\t")
    return f"'{text}" if _FORMULA.match(value) and not _NUMBER.fullmatch(value) else text


class CsvRows:
    """Writes rows to a text file: sequences of cells, or mappings where the columns are named."""

    def __init__(self, file: TextIO, columns: Iterable[str] | None = None) -> None:
        self._writer = csv.writer(file, lineterminator="\n")
        self._columns = list(columns or ())

    def header(self) -> None:
        """The names of the columns."""
        self.row(self._columns)

    def row(self, row: Sequence[object] | Mapping[str, object]) -> None:
        """One row; what a mapping lacks is an empty cell."""
        cells = [row.get(name, "") for name in self._columns] if isinstance(row, Mapping) else row
        self._writer.writerow([csv_cell(each) for each in cells])

    def rows(self, rows: Iterable[Sequence[object] | Mapping[str, object]]) -> None:
        """One row after the other."""
        for row in rows:
            self.row(row)
