"""Models to take away: plain modules, and files that are read without FedTempo."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import fedtempo as ft
from tests import zoo
from tests.slow import slow_but


class Mine(nn.Module):
    """A user's own module with a body and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, 5)
        self.head = nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(torch.relu(self.body(x)))
        return output


def trained(algorithm: ft.Algorithm, model: nn.Module | None = None) -> ft.Result:
    return ft.run(model=model or Mine(), data=zoo.data("mlp"), algorithm=algorithm, rounds=2, batch_size=4)


def test_a_plain_module_of_ones_own_class() -> None:
    result = trained(ft.algorithms.fedavg(lr=0.1, steps=2))
    model = result.model()
    assert type(model) is Mine and not model.training
    assert all(torch.equal(t, result.params[n]) for n, t in model.state_dict().items())
    again = pickle.loads(pickle.dumps(model))
    x = torch.randn(3, 6)
    assert torch.equal(again(x), model(x))


@pytest.mark.parametrize("name", ["fedper", "ditto", "scaffold", "local only", "fedbabu"])
def test_a_clients_model_predicts_as_the_client_does(name: str) -> None:
    result = trained(zoo.ALGORITHMS[name])
    rows = result.experiment.federation.problem.client_rows(3, "test")
    assert torch.allclose(result.model(client=3)(rows["x"]), result.predict(3), atol=1e-6)


def test_a_new_users_model_is_the_personalised_one() -> None:
    result = trained(ft.algorithms.fedrep(lr=0.1, head_steps=2, body_steps=2))
    rows = result.experiment.federation.problem.client_rows(0)
    assert torch.equal(result.model(rows, steps=3)(rows["x"]), result.personalize(rows, steps=3)(rows["x"]))


def test_a_new_user_with_nan_is_refused() -> None:
    result = trained(ft.algorithms.fedavg(lr=0.1, steps=2))
    rows = (np.where(np.eye(6) > 0, np.nan, 1.0), np.zeros(6, dtype=int))
    for serve in (result.personalize, result.model):
        with pytest.raises(ft.DataError, match=r"column 'x' must be finite. Got NaN or infinity in row 0 of"):
            serve(rows)


def test_a_model_without_its_personal_part_is_refused() -> None:
    result = trained(ft.algorithms.fedper(lr=0.1, steps=2))
    with pytest.raises(ft.ConfigError, match="is personal: say whose"):
        result.model()
    with pytest.raises(ft.ConfigError, match=r"client must be an int in \[0, 8\). Got 99"):
        result.model(client=99)
    with pytest.raises(ft.ConfigError, match="steps must be left out"):
        result.model(client=1, steps=3)


def test_a_mixture_is_no_single_module() -> None:
    result = trained(ft.algorithms.fedem(lr=0.1, steps=1, components=2))
    with pytest.raises(ft.ConfigError, match="fedem predicts with more than one module"):
        result.model(client=0)


def test_a_safetensors_file_holds_the_tensors(tmp_path: Path) -> None:
    result = trained(ft.algorithms.fedavg(lr=0.1, steps=2))
    path = result.save_model(tmp_path / "model")
    (tmp_path / "other").touch()
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode, "as readable as any other file"
    tensors = load_file(path)
    assert all(torch.equal(tensors[n], t) for n, t in result.params.items())


WITHOUT_US = """
import sys
sys.modules["fedtempo"] = None
import numpy as np, torch
x = np.load(sys.argv[2])
if sys.argv[1].endswith(".onnx"):
    import onnxruntime
    session = onnxruntime.InferenceSession(sys.argv[1])
    out = session.run(None, {session.get_inputs()[0].name: x})[0]
else:
    out = torch.export.load(sys.argv[1]).module()(torch.from_numpy(x)).detach().numpy()
np.save(sys.argv[3], out)
"""


@pytest.mark.parametrize("format", slow_but(["onnx"], ["torch", "onnx"], "the other format runs every time"))
def test_a_process_without_fedtempo_gets_the_same_outputs(
    format: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if format == "onnx":
        pytest.importorskip("onnxscript", reason="the extra 'onnx' is not installed")
        pytest.importorskip("onnxruntime", reason="the extra 'onnx' is not installed")
    result = trained(ft.algorithms.fedavg(lr=0.1, steps=2))
    capfd.readouterr()
    x = np.random.default_rng(0).standard_normal((7, 6)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    path = result.save_model(tmp_path / "model", format)  # type: ignore[arg-type]
    assert capfd.readouterr() == ("", ""), "exporters of torch print their progress"
    command = [sys.executable, "-c", WITHOUT_US, str(path), str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    subprocess.run(command, check=True, cwd=tmp_path)
    assert np.abs(np.load(tmp_path / "y.npy") - result.model()(torch.from_numpy(x)).numpy()).max() < 1e-6
