"""The PFLEGO paper's tables and figures, in the paper's order."""

from fedtempo.papers.pflego import cost, degrees, omniglot, participation

REPRODUCTIONS = (
    *degrees.REPRODUCTIONS,
    *omniglot.REPRODUCTIONS,
    *participation.REPRODUCTIONS,
    *cost.REPRODUCTIONS,
)
