"""The decaying-K paper's tables and figures, in the paper's order."""

from fedtempo.papers.decaying_k.data import FEMNIST, SHAKESPEARE, STACKOVERFLOW
from fedtempo.papers.decaying_k.fractions import FRACTION
from fedtempo.papers.decaying_k.illustration import QUADRATIC

REPRODUCTIONS = (QUADRATIC, FRACTION, STACKOVERFLOW, FEMNIST, SHAKESPEARE)
