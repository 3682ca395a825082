"""Reporting: tables, pages, run folders, progress."""

from fedtempo.reporting.folder import EXPERIMENT, export, summary, write_experiment
from fedtempo.reporting.html import write_report
from fedtempo.reporting.live import follow
from fedtempo.reporting.tables import ResultTable

__all__ = ["EXPERIMENT", "ResultTable", "export", "follow", "summary", "write_experiment", "write_report"]
