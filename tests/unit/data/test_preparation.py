"""What is done to a frame's rows before training can be read, and done to other rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtempo as ft

ROWS: dict[str, list[Any]] = {
    "clinic": [f"c{i % 5}" for i in range(60)],
    "age": [20.0 + (7 * i) % 53 for i in range(60)],
    "pressure": [None if i % 11 == 0 else 1e6 + i for i in range(60)],
    "ward": [("heart", "other", None)[i % 3] for i in range(60)],
    "ill": [("yes", "no")[(i // 2) % 2] for i in range(60)],
}


def data(**settings: Any) -> ft.data.FederatedData:
    table = ft.data.from_frame(ROWS, client="clinic", target="ill", **{"strings": "one_hot", **settings})
    return table.split(new_clients=1, seed=0)


@pytest.mark.parametrize("strings", ["one_hot", "codes"])
@pytest.mark.parametrize("missing", ["mean", "zero"])
@pytest.mark.parametrize("standardise", [True, False])
def test_the_same_is_done_to_raw_rows_bit_for_bit(strings: str, missing: str, standardise: bool) -> None:
    found = data(strings=strings, missing=missing, standardise=standardise)
    assert found.preparation is not None
    assert np.array_equal(found.preparation.rows(ROWS), found.columns["x"])
    raw = found.preparation.raw(ROWS)
    assert np.isnan(raw[0, 1]) and raw[1, 1] == 1e6 + 1


def test_it_is_measured_on_training_rows_of_training_clients() -> None:
    found = data(missing="mean", standardise=True)
    assert found.preparation is not None
    rows = np.concatenate([found.positions(client) for client in found.clients.tolist()])
    ages = np.array(ROWS["age"])[rows]
    assert found.preparation.mean[0] == pytest.approx(ages.mean()) and found.preparation.mean[0] != np.mean(ROWS["age"])
    assert found.preparation.scale[0] == pytest.approx(ages.std())
    assert found.preparation.classes == ("no", "yes")
    assert found.preparation.labels == ["age", "pressure", "ward=(missing)", "ward=heart", "ward=other"]


def test_a_mean_is_kept_for_later_gaps_where_the_file_has_none() -> None:
    whole = {**ROWS, "pressure": [float(i) for i in range(60)]}
    found = ft.data.from_frame(whole, client="clinic", target="ill", features=["pressure"], missing="mean").split(
        seed=0
    )
    assert found.preparation is not None
    assert found.preparation.rows({"pressure": [None]})[0, 0] == found.preparation.fill[0] > 0
    assert np.array_equal(found.columns["x"].ravel(), whole["pressure"])


def test_it_is_plain_json_with_every_digit() -> None:
    found = data(features=["age", "ward"], missing="zero", standardise=True).preparation
    assert found is not None
    told = json.loads(json.dumps(found.as_dict()))
    assert told["mean"] == list(found.mean) and told["scale"] == list(found.scale)
    assert told["features"][1] == {"column": "ward", "kind": "one_hot", "values": ["(missing)", "heart", "other"]}
    refusing = data(features=["age"]).preparation
    assert refusing is not None and refusing.as_dict()["fill"] == [None]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"ward": ["surgery"] * 60}, "column 'ward': value 'surgery' is not known. Known: "),
        ({"age": ["old"] * 60}, "column 'age' of frame must hold numbers. Got 'old'"),
        ({"age": [float("inf")] * 60}, "column 'age' of frame must hold finite numbers"),
    ],
)
def test_rows_that_do_not_fit_are_refused(change: dict[str, Any], rule: str) -> None:
    found = data(missing="mean").preparation
    assert found is not None
    with pytest.raises(ft.FedTempoError, match=rule):
        found.rows({**ROWS, **change})
    with pytest.raises(ft.FedTempoError, match="column 'age' is not known"):
        found.rows({name: values for name, values in ROWS.items() if name != "age"})


def test_a_gap_that_nothing_fills_is_refused() -> None:
    found = data(features=["age"]).preparation
    assert found is not None
    with pytest.raises(ft.DataError, match=r"column 'age' of frame must have a value in every row. Got a missing one"):
        found.rows({"age": [1.0, None]})


def test_it_is_no_part_of_what_a_stored_run_is_known_by() -> None:
    from dataclasses import replace

    from fedtempo.support.identity import identity_of

    found = data(missing="mean")
    assert identity_of(found) == identity_of(replace(found, preparation=None))


def test_a_slip_in_a_column_of_numbers_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = [f"c{i % 3},{'old' if i == 7 else 20 + i},{'V' if i % 2 else ''}{i % 7},{i % 2}" for i in range(40)]
    (tmp_path / "visits.csv").write_text("\n".join(["clinic,age,code,ill", *lines]))
    ft.data.from_csv(tmp_path / "visits.csv", client="clinic", target="ill", strings="one_hot")
    said = (
        "column 'age' of visits.csv is taken for text with 40 values: 1 of its 40 cells are no numbers, such as 'old'"
    )
    assert caplog.messages == [said], "a column of codes is text on purpose"


def test_a_file_without_rows_is_named(tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text("clinic,age,ill\n")
    with pytest.raises(ft.DataError, match=r"visits.csv must have rows below its line of column names. Got none"):
        ft.data.from_csv(tmp_path / "visits.csv", client="clinic", target="ill")
