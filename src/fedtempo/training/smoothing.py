"""Progress of training: the smoothed loss that adaptive schedules follow."""

from __future__ import annotations

import math
from typing import NamedTuple

SMOOTHING = 0.9
PATIENCE = 10
IMPROVEMENT = 0.01


class Progress(NamedTuple):
    """Smoothed training loss, its first value, its best, and how often it has stopped falling."""

    first: float = math.nan
    smoothed: float = math.nan
    best: float = math.inf
    rounds_since_best: int = 0
    plateaus: int = 0

    def after(self, loss: float) -> Progress:
        """Progress after a round with this training loss; a round without one changes nothing."""
        if not math.isfinite(loss):
            return self
        if math.isnan(self.first):
            return Progress(loss, loss, loss)
        smoothed = SMOOTHING * self.smoothed + (1 - SMOOTHING) * loss
        # A loss may be negative, such as the log-likelihood of a density.
        if smoothed < self.best - IMPROVEMENT * abs(self.best):
            return self._replace(smoothed=smoothed, best=smoothed, rounds_since_best=0)
        waited = self.rounds_since_best + 1
        if waited < PATIENCE:
            return self._replace(smoothed=smoothed, rounds_since_best=waited)
        return self._replace(smoothed=smoothed, best=smoothed, rounds_since_best=0, plateaus=self.plateaus + 1)

    @property
    def ratio(self) -> float:
        """Smoothed loss over its first value; 1 before the first round."""
        return self.smoothed / self.first if self.first > 0 else 1.0
