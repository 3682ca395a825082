"""The PFLEGO paper's tables and figures, in the paper's order."""

from fedtempo.papers.pflego import cost, degrees, participation
from fedtempo.papers.pflego.cifar import CIFAR
from fedtempo.papers.pflego.emnist import EMNIST
from fedtempo.papers.pflego.omniglot import TABLE_2
from fedtempo.papers.pflego.tau_sweep import FIGURE_4

REPRODUCTIONS = (
    *degrees.REPRODUCTIONS,
    EMNIST,
    CIFAR,
    TABLE_2,
    FIGURE_4,
    *participation.REPRODUCTIONS,
    *cost.REPRODUCTIONS,
)
