"""Reporting: tables, pages, run folders, progress."""

from fedtempo.report import notebook, participation
from fedtempo.report.folder import REPORT, export, summary
from fedtempo.report.frames import tidy_csv, tidy_rows
from fedtempo.report.html import report, write_page, write_report
from fedtempo.report.live import follow
from fedtempo.report.notebook import tables_html
from fedtempo.report.sections import Bars, Forest, ForestRow, Grid, Lines, Rates, Section
from fedtempo.report.stored import read_run
from fedtempo.report.tables import result_table
from fedtempo.training.pictures import plan_of

__all__ = [
    "REPORT",
    "Bars",
    "Forest",
    "ForestRow",
    "Grid",
    "Lines",
    "Rates",
    "Section",
    "export",
    "follow",
    "notebook",
    "participation",
    "plan_of",
    "read_run",
    "report",
    "result_table",
    "summary",
    "tables_html",
    "tidy_csv",
    "tidy_rows",
    "write_page",
    "write_report",
]
