"""The PFLEGO paper's tables and figures, in the paper's order."""

from fedtempo.papers.pflego import cost, degrees, omniglot, participation
from fedtempo.papers.pflego.cifar import CIFAR
from fedtempo.papers.pflego.emnist import EMNIST

REPRODUCTIONS = (
    *degrees.REPRODUCTIONS,
    EMNIST,
    CIFAR,
    *omniglot.REPRODUCTIONS,
    *participation.REPRODUCTIONS,
    *cost.REPRODUCTIONS,
)
