"""The FedNAR paper's tables and figures, in the paper's order."""

from fedtempo.papers.fednar.adjustment import CLIPPING, SELF_ADJUSTMENT
from fedtempo.papers.fednar.shakespeare import SHAKESPEARE
from fedtempo.papers.fednar.weight_decay import SWEEP, TABLE

REPRODUCTIONS = (SWEEP, TABLE, SHAKESPEARE, SELF_ADJUSTMENT, CLIPPING)
