"""Presets that re-run the papers' illustrations on the library's own engine."""

from fedtempo.experiments.quadratic import figure_1

__all__ = ["figure_1"]
