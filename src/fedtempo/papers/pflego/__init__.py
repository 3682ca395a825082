"""The PFLEGO paper's tables and figures, in the paper's order."""

from fedtempo.papers.pflego import cost, degrees, omniglot, participation
from fedtempo.papers.pflego.cifar import CIFAR

REPRODUCTIONS = (
    *degrees.REPRODUCTIONS,
    CIFAR,
    *omniglot.REPRODUCTIONS,
    *participation.REPRODUCTIONS,
    *cost.REPRODUCTIONS,
)
