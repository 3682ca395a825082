"""The FedDecay paper, both versions of which have the same tables and figures."""

from __future__ import annotations

from fedtempo.papers.feddecay.heterogeneity import HETEROGENEITY
from fedtempo.papers.feddecay.pubmed import PUBMED
from fedtempo.papers.feddecay.ratios import TABLE_1
from fedtempo.papers.feddecay.sst2 import SST2, SST2_ALL
from fedtempo.papers.feddecay.users import FEMNIST

REPRODUCTIONS = (TABLE_1, FEMNIST, SST2, SST2_ALL, PUBMED, HETEROGENEITY)
