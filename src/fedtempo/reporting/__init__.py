"""Reporting: tables, pages, run folders, progress."""

from fedtempo.reporting.folder import RunFolder, summary
from fedtempo.reporting.html import write_report
from fedtempo.reporting.live import follow
from fedtempo.reporting.tables import ResultTable

__all__ = ["ResultTable", "RunFolder", "follow", "summary", "write_report"]
