"""The PFLEGO paper's tables and figures, in the paper's order."""

from fedtempo.experiments import pflego_cost, pflego_degrees, pflego_omniglot, pflego_participation

REPRODUCTIONS = (
    *pflego_degrees.REPRODUCTIONS,
    *pflego_omniglot.REPRODUCTIONS,
    *pflego_participation.REPRODUCTIONS,
    *pflego_cost.REPRODUCTIONS,
)
