"""Your own data, wrongly given: one line that names the client, the column or the setting."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.data import FederatedData, by_owner

X, Y = np.zeros((4, 3)), np.zeros(4, dtype=np.int64)
TABLE = ft.data.load("digits")
own = FederatedData.from_clients

WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "no clients": (lambda: own([]), "clients must hold at least one client"),
    "not a list": (lambda: own(5), "clients must be a list"),  # type: ignore[arg-type]
    "None among them": (lambda: own([(X, Y), None]), "data of client 1 must be"),  # type: ignore[list-item]
    "three arrays": (lambda: own([(X, Y, Y)]), "data of client 0 must be"),
    "a scalar": (lambda: own([(X, 3)]), "column 'y', must be numbers"),
    "strings": (lambda: own([(X, ["a", "b", "c", "d"])]), "must be numbers"),
    "dates": (lambda: own([(X, np.zeros(4, dtype="datetime64[D]"))]), "must be numbers"),
    "complex": (lambda: own([(X.astype(complex), Y)]), "must be numbers"),
    "ragged": (lambda: own([([[1.0], [1.0, 2.0]], [0, 1])]), "must be numbers"),
    "lengths": (lambda: own([(X, Y[:3])]), "columns of client 0 must have equal lengths"),
    "widths": (lambda: own([(X, Y), (X[:, :2], Y)]), "column 'x' must have rows of one shape"),
    "columns": (lambda: own([{"x": X, "y": Y}, {"z": X, "y": Y}]), "same columns"),
    "test is None": (lambda: own([(X, Y)], test=None), "test must be a list"),  # type: ignore[arg-type]
    "too few tests": (lambda: own([(X, Y), (X, Y)], test=[(X, Y)]), "test must have one entry per client, 2"),
    "fraction": (lambda: own([(X, Y)], test=1.5), "test must be a fraction"),
    "names": (lambda: own([(X, Y)], names=["a", "b"]), "names must have one entry per client"),
    "outputs": (lambda: own([(X, Y)], outputs=[1, 2]), "outputs must have one entry per client"),
    "seed": (lambda: own([(X, Y)], seed=-1), "seed must be an int"),
    "split by a word": (lambda: TABLE.split("iid"), "split must be a split"),  # type: ignore[arg-type]
    "split seed": (lambda: TABLE.split(ft.data.iid(3), seed="1"), "seed must be an int"),  # type: ignore[arg-type]
    "relabel": (lambda: TABLE.split(ft.data.iid(3), relabel="no"), "relabel must be"),  # type: ignore[arg-type]
    "owners, none": (lambda: by_owner(np.array([])), "owner must be"),
    "owners, too few": (lambda: TABLE.split(by_owner(np.zeros(3, dtype=int))), "owner must have one entry per row"),
    "data set": (lambda: ft.data.load(["mnist"]), "is not known"),  # type: ignore[arg-type]
    "hidden": (lambda: ft.models.mlp(3, 5, 2), "hidden must be a list"),  # type: ignore[arg-type]
    "sequence": (lambda: ft.schedules.sequence(5), "values must be a list"),  # type: ignore[arg-type]
    "sequence of words": (lambda: ft.schedules.sequence(["a"]), "values must be one or more"),  # type: ignore[list-item]
    "piecewise": (lambda: ft.schedules.piecewise(0.1, 5), "steps must be factors by round"),  # type: ignore[arg-type]
    "decay": (lambda: ft.algorithms.feddecay(lr=0.1, steps=2, decay=5), "decay must be"),  # type: ignore[arg-type]
    "backbone": (lambda: ft.algorithms.fednar(None, weight_decay=0.1, max_norm=1.0), "algorithm must be an Algorithm"),  # type: ignore[arg-type]
    "head": (lambda: ft.algorithms.fedper(lr=0.1, steps=2, head="head"), "head must be a selector"),  # type: ignore[arg-type]
    "newcomers": (lambda: ft.algorithms.local_only(lr=0.1, steps=2, newcomer_rounds=0), "newcomer_rounds must be"),
    "flag": (lambda: ft.algorithms.fedsgd(lr=0.1, full_batch="no"), "full_batch must be true or false"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", WRONG)
def test_one_line_that_names_it(name: str) -> None:
    build, message = WRONG[name]
    with pytest.raises(ft.FedTempoError, match=message) as caught:
        build()
    assert "\n" not in str(caught.value)
