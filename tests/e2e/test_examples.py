"""The gallery: every program of examples/ runs as it stands, shrunk to seconds, and is short."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import ROOT
from tests.programs import script_ended
from tests.slow import slow_but

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NEEDS = {
    "images_lazily": ("PIL",),
    "bert_lora": ("peft", "transformers"),
    "own_algorithm_tuned": ("optuna",),
    "early_stopping_onnx": ("onnx", "onnxscript", "onnxruntime"),
    "paper_comparison": ("matplotlib", "pandas"),
    "saved_results": ("pandas",),
    "tabular_csv": ("sklearn",),
}
SAYS = {
    "tabular_csv": "auroc on the test part",
    "images_lazily": "in memory at the end",
    "bert_lora": "client 0 keeps 8 tensors of its own",
    "next_character": "perplexity after fine-tuning",
    "own_algorithm_tuned": "the winner, on test rows",
    "early_stopping_onnx": "ONNX Runtime, without FedTempo",
    "saved_results": "the same digest",
    "paper_comparison": r"\begin{tabular}",
}


def test_the_gallery_is_listed() -> None:
    page = (ROOT / "docs" / "gallery.md").read_text()
    assert {path.stem for path in EXAMPLES} == set(SAYS)
    assert all(path.name in page for path in [*EXAMPLES, ROOT / "examples" / "first-steps.ipynb"])


HEAVIES = ("bert_lora", "paper_comparison", "own_algorithm_tuned", "early_stopping_onnx")
HEAVY = [path for path in EXAMPLES if path.stem in HEAVIES]
LIGHT = [path for path in EXAMPLES if path not in HEAVY]
ELSEWHERE = "loads transformers, matplotlib, optuna or onnx; what it shows is tried in laws/ and unit/"


@pytest.mark.parametrize("path", slow_but(LIGHT, EXAMPLES, ELSEWHERE), ids=lambda path: path.stem)
def test_the_program_runs(path: Path, tmp_path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 60
    missing = [name for name in NEEDS.get(path.stem, ()) if find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")
    data = os.environ.get("FEDTEMPO_DATA")
    if path.stem == "bert_lora" and not (data and (Path(data) / "bert_tiny" / "config.json").is_file()):
        pytest.skip("FEDTEMPO_DATA has no bert_tiny")
    surroundings = {**os.environ, "FEDTEMPO_QUICK": "1", "TMPDIR": str(tmp_path)}
    ran = script_ended(path, directory=tmp_path, environment=surroundings)
    assert ran.returncode == 0, ran.stderr
    assert SAYS[path.stem] in ran.stdout
