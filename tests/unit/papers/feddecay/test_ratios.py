"""The personalization ratio of local steps."""

from __future__ import annotations

import pytest

from fedtempo.papers.feddecay.ratios import LABELS as METHODS
from fedtempo.papers.feddecay.ratios import closed_ratio, printed_ratio, walked_ratio


@pytest.mark.parametrize("method", METHODS)
def test_local_steps_have_the_closed_form_and_not_equation_ten(method: str) -> None:
    beta = float(method.rsplit(maxsplit=1)[-1]) if "beta" in method else float(method != "FedSGD")
    walked = walked_ratio(method, beta, lr=1e-4, clients=2, batches=3)
    assert walked == pytest.approx(closed_ratio(method, beta, 3), abs=1e-3)
    if 0 < beta < 1:
        assert printed_ratio(beta, 3) == pytest.approx(closed_ratio(method, beta, 3) / beta)
