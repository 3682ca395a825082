"""Tuning: grid and Hyperband searches over any field of an experiment file, by validation scores."""

from fedtempo.tuning.grids import GRIDS, PaperGrid
from fedtempo.tuning.outcome import Found, line_of
from fedtempo.tuning.search import plan_search, search, space_of
from fedtempo.tuning.space import Dimension, Space, dimensions_of
from fedtempo.tuning.study import Record, SearchPlan

__all__ = [
    "GRIDS",
    "Dimension",
    "Found",
    "PaperGrid",
    "SearchPlan",
    "Record",
    "Space",
    "dimensions_of",
    "line_of",
    "plan_search",
    "search",
    "space_of",
]
