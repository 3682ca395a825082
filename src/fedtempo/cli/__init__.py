"""The command line: one line per error, one exit code per kind of error."""

from fedtempo.cli.main import app, main

__all__ = ["app", "main"]
