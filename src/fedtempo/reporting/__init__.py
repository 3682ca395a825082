"""Reporting: tables, pages, run folders, progress."""

from fedtempo.reporting.folder import EXPERIMENT, REPORT, export, summary, write_experiment
from fedtempo.reporting.html import report, write_page, write_report
from fedtempo.reporting.live import follow
from fedtempo.reporting.runs import ReportRun
from fedtempo.reporting.sections import Bars, Grid, Lines, Section
from fedtempo.reporting.stored import read_run
from fedtempo.reporting.tables import ResultTable

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
