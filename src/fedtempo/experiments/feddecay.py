"""The FedDecay paper, both versions: Table 1."""

from __future__ import annotations

from fedtempo.experiments.feddecay_ratios import TABLE_1

REPRODUCTIONS = (TABLE_1,)
