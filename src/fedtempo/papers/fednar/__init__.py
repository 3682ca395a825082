"""The FedNAR paper's tables and figures, in the paper's order."""

from fedtempo.papers.fednar.adjustment import SELF_ADJUSTMENT
from fedtempo.papers.fednar.clipping import CLIPPING
from fedtempo.papers.fednar.shakespeare import SHAKESPEARE
from fedtempo.papers.fednar.table import TABLE
from fedtempo.papers.fednar.weight_decay import SWEEP

REPRODUCTIONS = (SWEEP, TABLE, SHAKESPEARE, SELF_ADJUSTMENT, CLIPPING)
