"""Packages that are loaded when a test first uses them.

Every worker collects all tests, and only one of them runs the tests of a package that takes a second to load.
"""

from __future__ import annotations

from typing import Any

import pytest


class Later:
    """The module of this name. Where it is not installed, the test that uses it is skipped."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest asks every name of a module for its own marks when it collects
            raise AttributeError(attribute)
        return getattr(pytest.importorskip(self._name), attribute)
