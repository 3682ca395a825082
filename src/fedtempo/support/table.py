"""One table: made once, then rendered for a terminal, Markdown, LaTeX, CSV or a page.

Numbers are rounded for reading, except in CSV and in `records`, which have every digit.
"""

from __future__ import annotations

import io
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fedtempo.errors import unknown
from fedtempo.support.csv_rows import CsvRows
from fedtempo.support.json_text import JsonTable
from fedtempo.support.printable import printable
from fedtempo.support.terminal import Terminal

if TYPE_CHECKING:
    from rich.table import Table as RichTable
    from rich.text import Text

Form = Literal["score", "signed", "count", "seconds", "share", "p"]
"""What a number is: it decides how it is rounded."""
LEAST_NAME, MOST_NAME = 12, 40
"""The widths between which a name is folded where a table has little room."""
LATEX = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
}


class Number(NamedTuple):
    """A number, with its values by seed where it is a mean of several."""

    value: float
    form: Form = "score"
    half: float = math.nan
    """Half of its interval, which stands behind a ±; NaN where there is none."""
    by_seed: tuple[float, ...] = ()
    best: bool = False
    """Whether it cannot be told from the best of its column."""

    def text(self, digits: int = 3) -> str:
        """The value, rounded for reading.

        >>> Number(0.91234).text(), Number(12345678, "count").text(), Number(0.0004, "p").text()
        ('0.912', '12M', '<0.001')
        """
        if math.isnan(self.value):
            return "-"
        if self.form == "count":
            return with_unit(self.value)
        if self.form == "seconds":
            return f"{self.value:.1f}"
        if self.form == "share":
            return f"{self.value:.0%}"
        if self.form == "p" and self.value < 0.001:
            return "<0.001"
        sign = "+" if self.form == "signed" and self.value >= 0 else ""
        return f"{sign}{self.value:.{digits}f}"

    def spread(self, digits: int = 3) -> str:
        """Half of the interval; empty where there is none."""
        return f"{self.half:.{digits}f}" if math.isfinite(self.half) else ""


class Ends(NamedTuple):
    """The two ends of an interval of a difference."""

    low: float
    high: float

    def text(self, digits: int = 3) -> str:
        """Both ends with their signs.

        >>> Ends(-0.17, 0.451).text()
        '-0.170…+0.451'
        """
        return "-" if math.isnan(self.low) else f"{self.low:+.{digits}f}…{self.high:+.{digits}f}"


Cell = str | Number | Ends | None


class TableColumn(NamedTuple):
    """A column by the key that chooses it, with its head."""

    key: str
    head: str
    over: str = ""
    """What stands over this head and those beside it, such as the kind of users."""
    shown: bool = True
    left_out: int = 0
    """Which columns a narrow terminal goes without: those with 1 first; 0 stays."""
    words: bool = False
    """Whether it holds words, which begin at the left."""
    widest: int = 0
    """The width at which a terminal folds its words; 0 folds none."""
    bare: bool = False
    """Whether a terminal shows its numbers without their ±, for want of room."""


@dataclass(frozen=True)
class ResultTable:
    """Rows of names and cells. `print` shows it; `markdown`, `latex`, `csv` and `html` hand it on."""

    title: str
    columns: Sequence[TableColumn]
    rows: Sequence[tuple[str, Mapping[str, Cell]]]
    notes: Sequence[str] = ()
    names: str = "contestant"
    """The head of the first column, which has the names of the rows as they were given."""
    spread: str = ""
    """What ± is, for the title."""
    digits: int = 3
    key: str = "label"
    """What `records` call the name of a row."""

    def choose(self, *keys: str) -> ResultTable:
        """The table with these columns, in this order; `table.columns` has the keys of all.

        >>> columns = [TableColumn("a", "A"), TableColumn("b", "B", shown=False)]
        >>> table = ResultTable("t", columns, [("x", {"a": "1", "b": "2"})])
        >>> print(table.choose("b").csv())
        contestant,b
        x,2
        <BLANKLINE>
        """
        known = {column.key: column for column in self.columns}
        for key in keys:
            if key not in known:
                raise unknown("column", key, list(known))
        chosen = [known[key]._replace(shown=True, left_out=0, bare=False) for key in keys]
        return replace(self, columns=[*chosen, *(one._replace(shown=False) for one in self.columns)])

    @property
    def _shown(self) -> list[TableColumn]:
        return [one for one in self.columns if one.shown]

    def _told(self, columns: Sequence[TableColumn]) -> str:
        """The title, with what ± is where some column that is shown has one."""
        cells = (row.get(column.key) for _, row in self.rows for column in columns if not column.bare)
        spread = any(isinstance(cell, Number) and cell.spread() for cell in cells)
        return f"{self.title}, {self.spread}" if spread and self.spread else self.title

    def records(self) -> list[JsonTable]:
        """One dict per row with every number there is: a list over seeds where there are seeds."""
        return [
            {self.key: name, **{key: _plain(cell) for key, cell in row.items() if cell is not None}}
            for name, row in self.rows
        ]

    def terminal(self, width: int | None = None) -> RichTable:
        """For a terminal. Without a width nothing is folded.

        In a narrow one, names are folded, then the least important columns are left out, and a line below says so.
        """
        from rich.table import Table as RichTable

        shown, gone = self._shown, list[TableColumn]()
        texts = {column.key: self._lines(column) for column in shown}
        most = {one.key: one.widest if width is not None and one.widest else math.inf for one in shown}
        needs = {key: 1 + int(min(most[key], max(map(_width, lines), default=0))) for key, lines in texts.items()}
        names = max(map(len, (self.names, *(name for name, _ in self.rows))), default=0)
        order = sorted((one for one in shown if one.left_out), key=lambda one: one.left_out)
        while width is not None and order and LEAST_NAME + sum(needs[one.key] for one in shown) > width:
            last = order[0].left_out
            gone += [one for one in order if one.left_out == last]
            order = [one for one in order if one.left_out != last]
            shown = [one for one in shown if one not in gone]
        room = names if width is None else width - sum(needs[one.key] for one in shown)
        missing = dict.fromkeys(one.head for one in gone)
        below = [*self.notes, *([f"no room here for: {', '.join(missing)}"] if missing else [])]
        table = RichTable(
            title=_line(self._told(shown), width),
            title_justify="left",
            caption=_line("; ".join(below), width) if below else None,
            caption_justify="left",
            box=None,
            padding=(0, 1, 0, 0),
            pad_edge=False,
        )
        folded = names if room >= names else max(LEAST_NAME, min(MOST_NAME, room))
        heads = dict(zip([one.key for one in shown], _heads(shown), strict=True))
        tall = any("\n" in head for head in heads.values())
        table.add_column(f"\n{self.names}" if tall else self.names, overflow="fold", min_width=min(folded, LEAST_NAME))
        table.columns[0].max_width = folded
        for one in shown:
            head = heads[one.key]
            side: Literal["left", "right"] = "left" if one.words else "right"
            limit = one.widest if width is not None and one.widest else None
            head = head if "\n" in head or not tall else f"\n{head}"
            table.add_column(head, justify=side, no_wrap=limit is None, overflow="fold", max_width=limit)
        for name, row in self.rows:
            table.add_row(name, *(_short(row.get(one.key), self.digits, one.bare) for one in shown))
        return table

    def _lines(self, column: TableColumn) -> list[str]:
        """What stands in a column, line by line, with its head."""
        head = _heads([column])[0].splitlines()
        return [*head, *(_short(row.get(column.key), self.digits, column.bare) for _, row in self.rows)]

    def text(self, width: int | None = None) -> str:
        """As plain text; without a width nothing is folded."""
        screen = io.StringIO()
        Terminal(file=screen, width=width or 100_000, force_terminal=False).print(self.terminal(width))
        return "\n".join(line.rstrip() for line in screen.getvalue().rstrip().splitlines())

    def __str__(self) -> str:
        return self.text(width_of_terminal())

    def markdown(self) -> str:
        """A Markdown table; bold marks what cannot be told from the best."""
        shown = self._shown
        lines = [f"| {' | '.join(['', *map(_whole_head, shown)])} |", f"|---|{'---:|' * len(shown)}"]
        for name, row in self.rows:
            cells = [_marked(row.get(one.key), "**{}**", " ± ", self.digits) for one in shown]
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in (name, *cells))} |")
        return "\n".join([*lines, "", self._caption(), ""])

    def latex(self) -> str:
        """A LaTeX table for the package booktabs."""
        shown = self._shown
        body = [
            f"{escaped(name)} & {' & '.join(_latex(row.get(one.key), self.digits) for one in shown)} \\\\"
            for name, row in self.rows
        ]
        return "\n".join(
            [
                "% needs \\usepackage{booktabs}",
                f"\\begin{{tabular}}{{l{'r' * len(shown)}}}",
                "\\toprule",
                f" & {' & '.join(escaped(_whole_head(one)) for one in shown)} \\\\",
                "\\midrule",
                *body,
                "\\bottomrule",
                "\\end{tabular}",
                f"% {self._caption()}",
                "",
            ]
        )

    def csv(self) -> str:
        """One line per row with every digit; a number that is not known is an empty cell."""
        text = io.StringIO()
        writer = CsvRows(text)
        shown = self._shown
        cells = {one.key: [row.get(one.key) for _, row in self.rows] for one in shown}
        halves = {key: any(isinstance(c, Number) and c.spread() for c in column) for key, column in cells.items()}
        heads = [head for one in shown for head in (one.key, *([f"{one.key} half"] if halves[one.key] else []))]
        writer.row([self.names, *heads])
        for place, (name, _) in enumerate(self.rows):
            line: list[Any] = [name]
            for one in shown:
                cell = cells[one.key][place]
                line.append(_exact(cell))
                if halves[one.key]:
                    line.append(_known(cell.half) if isinstance(cell, Number) else "")
            writer.row(line)
        return text.getvalue()

    def html(self) -> str:
        """A table element; names and words cannot run."""
        shown = self._shown
        heads = "".join(f"<th>{escape(_whole_head(one))}</th>" for one in shown)
        body = ""
        for name, row in self.rows:
            cells = (_html(row.get(one.key), self.digits) for one in shown)
            body += f"<tr><td>{escape(name)}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        caption = f"<caption>{escape('. '.join([self._told(shown), *self.notes]))}</caption>"
        return (
            f"<table>{caption}<thead><tr><th>{escape(self.names)}</th>{heads}</tr></thead><tbody>{body}</tbody></table>"
        )

    def _repr_html_(self) -> str:
        return self.html()

    def _caption(self) -> str:
        bold = any(isinstance(cell, Number) and cell.best for _, row in self.rows for cell in row.values())
        told = f"{self._told(self._shown)}{'; bold: what cannot be told from the best of a column' if bold else ''}."
        return " ".join([told, *(f"{note.rstrip('.')}." for note in self.notes)])


def mean_over_seeds(
    values: Sequence[float], half: float = math.nan, form: Form = "score", best: bool = False
) -> Number:
    """The number of a column whose values are known by seed."""
    known = [value for value in values if not math.isnan(value)]
    return Number(fmean(known) if known else math.nan, form, half, tuple(values), best)


def with_unit(number: float) -> str:
    """12345678 as 12M, 1234567 as 1.2M."""
    for unit in ("", "k", "M", "G", "T", "P"):
        if abs(number) < 1000 or unit == "P":
            return f"{number:.0f}{unit}" if unit == "" or abs(number) >= 10 else f"{number:.1f}{unit}"
        number /= 1000
    return str(number)


def escaped(text: str) -> str:
    """Text in which LaTeX sees no commands."""
    return "".join(LATEX.get(letter, letter) for letter in text)


def width_of_terminal() -> int | None:
    """The columns of the terminal, or those that COLUMNS names; None where nobody limits them, such as in a pipe."""
    if os.environ.get("COLUMNS", "").isdecimal():
        return int(os.environ["COLUMNS"])
    return Terminal().width if sys.stdout.isatty() else None


def _line(text: str, width: int | None) -> Text:
    """A line above or below a table: as wide as the terminal, not only as the table."""
    from rich.text import Text

    fits = width is None or _width(text) <= width
    return Text(printable(text), no_wrap=fits, overflow="ignore" if fits else "fold")


def _whole_head(column: TableColumn) -> str:
    return f"{column.over}, {column.head}" if column.over else column.head


def _heads(columns: Sequence[TableColumn]) -> list[str]:
    """Heads of two lines: what stands over several columns is over the first of them; two words are split."""
    heads, before = list[str](), ""
    for one in columns:
        first, _, second = one.head.partition(" ")
        upper = one.over if one.over != before else ""
        if second and not upper and one.over:
            heads.append(f"{first}\n{second}")
        else:
            heads.append(f"{upper}\n{one.head}" if one.over else one.head)
        before = one.over
    return heads


def _short(cell: Cell, digits: int, bare: bool) -> str:
    """A cell for a terminal, where 0.912 is .912."""
    if cell is None:
        return "-"
    if isinstance(cell, str):
        return cell
    text = cell.text(digits)
    if isinstance(cell, Number):
        if cell.form == "seconds":
            return text
        half = "" if bare else cell.spread(digits)
        text = f"{text} ±{half}" if half else text
    return " ".join(map(_without_zero, text.split(" ")))


def _without_zero(word: str) -> str:
    for zero in ("0.", "+0.", "-0.", "±0."):
        if word.startswith(zero):
            word = zero[:-2] + word[len(zero) - 1 :]
            break
    return word.replace("…+0.", "…+.").replace("…-0.", "…-.")


def _marked(cell: Cell, bold: str, sign: str, digits: int) -> str:
    if not isinstance(cell, Number):
        return "-" if cell is None else cell if isinstance(cell, str) else cell.text(digits)
    text, half = cell.text(digits), cell.spread(digits)
    return (bold.format(text) if cell.best else text) + (f"{sign}{half}" if half else "")


def _latex(cell: Cell, digits: int) -> str:
    if cell is None or (isinstance(cell, Number) and math.isnan(cell.value)):
        return "--"
    if isinstance(cell, str):
        return escaped(cell)
    if isinstance(cell, Ends):
        return "--" if math.isnan(cell.low) else f"$[{cell.low:+.{digits}f}, {cell.high:+.{digits}f}]$"
    value = cell.text(digits).replace("<", "{<}").replace("%", "\\%")
    number = f"\\mathbf{{{value}}}" if cell.best else value
    half = cell.spread(digits)
    return f"${number}{f' {chr(92)}pm {half}' if half else ''}$"


def _html(cell: Cell, digits: int) -> str:
    text = escape(_marked(cell, "{}", " ±", digits))
    return f"<b>{text}</b>" if isinstance(cell, Number) and cell.best else text


def _plain(cell: Cell) -> object:
    if isinstance(cell, Number):
        return list(cell.by_seed) if cell.by_seed else cell.value
    return list(cell) if isinstance(cell, Ends) else cell


def _exact(cell: Cell) -> object:
    if isinstance(cell, Number):
        return _known(cell.value)
    if isinstance(cell, Ends):
        return "" if math.isnan(cell.low) else f"{cell.low} {cell.high}"
    return "" if cell is None else cell


def _known(value: float) -> object:
    return "" if math.isnan(value) else value


def _width(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
