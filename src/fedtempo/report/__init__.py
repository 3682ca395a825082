"""Reporting: tables, pages, run folders, progress."""

# Nobody calls the notebook's functions by name: importing the module registers them with `fedtempo.display`.
import fedtempo.report.notebook  # noqa: F401
from fedtempo.report.folder import EXPERIMENT, REPORT, export, summary, write_experiment
from fedtempo.report.html import report, write_page, write_report
from fedtempo.report.live import follow
from fedtempo.report.runs import ReportRun
from fedtempo.report.sections import Bars, Grid, Lines, Section
from fedtempo.report.stored import read_run
from fedtempo.report.tables import ResultTable

__all__ = [
    "EXPERIMENT",
    "REPORT",
    "Bars",
    "Grid",
    "Lines",
    "ReportRun",
    "ResultTable",
    "Section",
    "export",
    "follow",
    "read_run",
    "report",
    "summary",
    "write_experiment",
    "write_page",
    "write_report",
]
