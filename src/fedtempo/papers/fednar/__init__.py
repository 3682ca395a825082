"""The FedNAR paper's tables and figures, in the paper's order."""

from fedtempo.papers.fednar.cifar10 import TABLE
from fedtempo.papers.fednar.clipping import CLIPPING
from fedtempo.papers.fednar.self_adjustment import SELF_ADJUSTMENT
from fedtempo.papers.fednar.shakespeare import SHAKESPEARE
from fedtempo.papers.fednar.weight_decay import SWEEP

REPRODUCTIONS = (
    SWEEP,  # Figures 1 and 2
    TABLE,  # Table 1 and Figure 3
    SHAKESPEARE,  # Table 2
    SELF_ADJUSTMENT,  # Figure 4
    CLIPPING,  # Figure 5
)
