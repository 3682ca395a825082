"""The FedDecay paper, both versions of which have the same tables and figures."""

from __future__ import annotations

from fedtempo.experiments.feddecay_ratios import TABLE_1
from fedtempo.experiments.feddecay_users import FEMNIST, PUBMED, SST2

REPRODUCTIONS = (TABLE_1, FEMNIST, SST2, PUBMED)
