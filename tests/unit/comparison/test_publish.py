"""Tables for papers: bold is what cannot be told from the best, p values are Holm's, LaTeX sees no commands."""

from __future__ import annotations

import pytest

from fedtempo.comparison import Comparison, Line, latex, markdown, paired_tests
from fedtempo.evaluation.over_seeds import over_seeds
from fedtempo.support.table import escaped

BY_SEED = {
    "fedavg": [0.50, 0.52, 0.51],
    "feddecay:beta=0.4_&": [0.60, 0.63, 0.60],
    "fedprox": [0.50, 0.51, 0.53],
}


def comparison(lower: bool = False) -> Comparison:
    lines = []
    for label, values in BY_SEED.items():
        by_seed = {
            group: {"mean": values, "bottom_decile": [v / 2 for v in values], "std": [0.1, 0.1, 0.1]}
            for group in ("existing_before", "existing_after")
        }
        scores = {g: {s: over_seeds(v) for s, v in found.items()} for g, found in by_seed.items()}
        lines.append(Line(label, [0, 1, 2], scores, by_seed, {}, {}, None))
    return Comparison("accuracy", "test", "fedavg", None, lines, [], lower)


def test_markdown_by_hand() -> None:
    """0.61 ± t(2) s / sqrt(3) = 4.3027 * 0.017321 / 1.73205 = 0.043; gaps of one sign have p = 2/8, times 2 tests."""
    table = markdown(comparison(), "sign-flip").splitlines()
    assert table[0] == "|  | existing, before | existing, after | existing, bottom decile | existing, p |"
    assert "| feddecay:beta=0.4_& | **0.610** ± 0.043 | **0.610** ± 0.043 | **0.305** ± 0.022 | 0.500 |" in table
    assert table[2].startswith("| fedavg | 0.510 ± 0.025 |") and table[2].endswith("| - |")
    assert "With 3 seeds an uncorrected p is at least 0.25." in table[-1]


def test_what_cannot_be_told_from_the_best_is_bold() -> None:
    """fedavg minus fedprox is 0, 0.01, -0.02: the interval holds 0. feddecay is 0.1 away from both on every seed."""
    bold = [line for line in markdown(comparison(lower=True)).splitlines() if "** ±" in line]
    assert [line.split("|")[1].strip() for line in bold] == ["fedavg", "fedprox"]
    assert "bold: what cannot be told from the best of a column." in markdown(comparison())


def test_latex_escapes_and_bolds() -> None:
    table = latex(comparison(), "t")
    assert r"feddecay:beta=0.4\_\& & $\mathbf{0.610} \pm 0.043$" in table
    assert r"existing, bottom decile" in table and "paired t test against fedavg" in table
    assert table.count(r"\\" + "\n") == 4 and table.count("&") - table.count(r"\&") == 4 * 4
    assert escaped("\\^~") == r"\textbackslash{}\textasciicircum{}\textasciitilde{}"


def test_tests_are_paired_seed_by_seed() -> None:
    first, second = paired_tests(comparison(), "t")
    assert (first.label, first.group, first.seeds) == ("feddecay:beta=0.4_&", "existing_after", 3)
    assert first.difference == pytest.approx(0.1) and second.difference == pytest.approx(0.01 / 3)
    assert first.corrected == pytest.approx(2 * first.p) and second.corrected == pytest.approx(second.p)
