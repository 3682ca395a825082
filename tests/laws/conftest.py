"""Laws of single-model algorithms run as their numbers do: on both backends, with everybody and with some."""

from tests.numbers.single_model.conftest import backend, cohorts

__all__ = ["backend", "cohorts"]
