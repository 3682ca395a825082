"""The page: nothing in it can run, and its colours are told apart with any vision."""

from __future__ import annotations

import itertools
import re
from importlib.resources import files

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.report import Bars, Grid, Section, report
from tests.unit.report.pages import numbers_in

ASSETS = files("fedtempo.report") / "assets"


def test_names_cannot_run_or_end_the_script(result: ft.Result) -> None:
    evil = "</script><script>alert(1)</script><!--"
    section = Section(evil, evil, Grid([evil], [[evil]]), Bars({evil: 1.0}))
    page = report([ft.Run.of(result, evil, command=evil)], title=evil, sections=[section])
    assert page.count("<script") == 2
    assert page.count("</script>") == 2
    assert evil not in page
    assert numbers_in(page)["title"] == evil
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    assert "default-src 'none'" in policy[1]
    assert "connect-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]


def test_the_script_writes_text_and_never_markup() -> None:
    script = "".join(asset.read_text() for asset in ASSETS.iterdir() if asset.name.endswith(".js"))
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|https?://(?!www\.w3)", script
    )


VISION = {  # Machado, Oliveira and Fernandes (2009), full severity
    "usual": np.eye(3),
    "without red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "without green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "without blue": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


@pytest.mark.parametrize("vision", VISION)
def test_colours_are_told_apart_with_any_vision(vision: str) -> None:
    style = (ASSETS / "report.css").read_text()
    palettes = [dict(re.findall(r"--(c\d): (#[0-9a-f]{6})", block)) for block in style.split("{") if "--c0:" in block]
    assert [len(palette) for palette in palettes] == [7, 7, 7]
    for palette in palettes:
        seen = [_lab(VISION[vision] @ _linear(colour)) for colour in palette.values()]
        assert min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(seen, 2)) > 12


def _linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def _lab(linear: np.ndarray) -> np.ndarray:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(to_xyz @ np.clip(linear, 0, 1) / np.array([0.9505, 1.0, 1.089]))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_words_wrap_from_the_left_and_numbers_stand_under_each_other() -> None:
    rows = [["FedSGD", "one step a round", "+0.3 [-0.1, 0.7]", 4.0], ["FedAvg", "", None, 3]]
    page = report([], title="x", sections=[Section("y", table=Grid(["run", "idea", "difference", "rounds"], rows))])
    assert '<th class="words">idea</th><th>difference</th><th>rounds</th>' in page
    assert '<td class="words">one step a round</td><td>+0.3 [-0.1, 0.7]</td><td>4</td>' in page


def test_a_page_without_runs_shows_its_sections_alone() -> None:
    """What a search or a reproduction leaves: tables and figures, no empty controls."""
    page = report([], title="A search", sections=[Section("All trials", table=Grid(["trial"], [[1]]))])
    assert 'id="controls" hidden' in page
    assert 'id="results" hidden' in page
    assert "All trials" in page
