"""Models to take away: plain modules, and files that are read without FedTempo."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

import fedtempo as ft
from fedtempo.contracts import small_data
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


def test_a_plain_module_can_be_trained_on_and_what_was_frozen_stays_so() -> None:
    model = Mine()
    model.body.bias.requires_grad_(False)
    given = trained(ft.algorithms.fedavg(lr=0.1, steps=2), model).model()
    assert [n for n, p in given.named_parameters() if not p.requires_grad] == ["body.bias"]
    given.head = nn.Linear(5, 4)  # a new task: the body goes on training with it
    again = trained(ft.algorithms.fedavg(lr=0.1, steps=2), given).model()
    assert not torch.equal(again.get_parameter("body.weight"), given.get_parameter("body.weight"))


@pytest.mark.parametrize("format", ["torch", "onnx"])
def test_what_is_written_needs_no_gradients(format: str, tmp_path: Path) -> None:
    path = trained(ft.algorithms.fedavg(lr=0.1, steps=2)).save_model(tmp_path / "model", format)  # type: ignore[arg-type]
    if format == "torch":
        assert not torch.export.load(path).module()(torch.zeros(3, 6)).requires_grad
    assert path.exists()


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


@pytest.mark.parametrize("format", ["safetensors", "torch"])
def test_the_model_of_a_new_client_without_training_rows_is_written(tmp_path: Path, format: str) -> None:
    rows = {"user": list("aaaabbbb"), "age": range(8), "label": [0, 1] * 4, "part": ["train"] * 4 + ["test"] * 4}
    table = ft.data.from_frame(rows, client="user", target="label", part="part", standardise=True)
    result = ft.run(
        model=nn.Linear(1, 2),
        data=table.split(new_clients="untrained"),
        algorithm=ft.algorithms.fedavg(lr=0.1, steps=1),
        rounds=1,
        evaluation=ft.Evaluation(steps=0),
    )
    assert result.save_model(tmp_path / "model", client=1, format=format).exists()
    assert result.save_model(tmp_path / "raw", client=1, format="torch", raw=True).exists()
    with pytest.raises(ft.DataError, match=r"client must be an int in \[0, 2\)\. Got 99\."):
        result.save_model(tmp_path / "nobody", client=99)


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
import numpy as np
x = np.load(sys.argv[2])
if sys.argv[1].endswith(".onnx"):
    import onnxruntime
    session = onnxruntime.InferenceSession(sys.argv[1])
    out = session.run(None, {session.get_inputs()[0].name: x})[0]
else:
    import torch
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
    assert np.abs(np.load(tmp_path / "y.npy") - result.model()(torch.from_numpy(x)).detach().numpy()).max() < 1e-6


def on_a_table(**settings: Any) -> tuple[ft.Result, dict[str, list[Any]]]:
    """A short run of a user's own module on mixed columns with gaps, and its raw rows."""
    rows: dict[str, list[Any]] = {
        "clinic": [f"c{i % 4}" for i in range(80)],
        "year": [2000.0 + (7 * i) % 23 for i in range(80)],
        "pressure": [None if i % 9 == 0 else 90.0 + (11 * i) % 37 for i in range(80)],
        "ward": [("heart", "other", "surgery")[i % 3] for i in range(80)],
        "ill": [("yes", "no")[(i // 3) % 2] for i in range(80)],
    }
    table = ft.data.from_frame(rows, client="clinic", target="ill", strings="one_hot", missing="mean", standardise=True)
    algorithm = ft.algorithms.fedavg(lr=0.1, steps=2)
    data = table.split(seed=0)
    return ft.run(model=Own, data=data, algorithm=algorithm, rounds=2, **settings), rows


class Own(nn.Module):
    """Five features, two classes, a `forward` of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.skip, self.last = nn.Linear(5, 4), nn.Linear(5, 2), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.last(torch.tanh(self.first(x))) + self.skip(x)
        return output


@pytest.mark.slow("a process that loads torch; the same file is read in this process every time")
@pytest.mark.parametrize("format", ["torch", "onnx"])
def test_a_process_without_fedtempo_predicts_from_raw_rows(format: str, tmp_path: Path) -> None:
    if format == "onnx":
        pytest.importorskip("onnxscript", reason="the extra 'onnx' is not installed")
        pytest.importorskip("onnxruntime", reason="the extra 'onnx' is not installed")
    result, rows = on_a_table()
    data = result.experiment.federation.problem.data
    assert data.preparation is not None
    raw = data.preparation.raw(rows)
    assert np.isnan(raw).any() and raw[:, 0].max() > 2000
    np.save(tmp_path / "x.npy", raw)
    path = result.save_model(tmp_path / "model", format, raw=True)  # type: ignore[arg-type]
    command = [sys.executable, "-c", WITHOUT_US, str(path), str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    subprocess.run(command, check=True, cwd=tmp_path)
    prepared = torch.from_numpy(np.asarray(data.columns["x"])).float()
    assert np.abs(np.load(tmp_path / "y.npy") - result.model()(prepared).detach().numpy()).max() < 1e-6
    if format == "onnx":
        import onnxruntime

        told = onnxruntime.InferenceSession(path).get_modelmeta().custom_metadata_map
        assert json.loads(told["preparation"]) == data.preparation.as_dict()


def test_an_exported_model_takes_raw_rows_and_says_what_it_does_to_them(tmp_path: Path) -> None:
    result, rows = on_a_table()
    data = result.experiment.federation.problem.data
    assert data.preparation is not None
    told = {"preparation.json": ""}
    served = torch.export.load(result.save_model(tmp_path / "model", "torch", raw=True), extra_files=told).module()
    prepared = torch.from_numpy(np.asarray(data.columns["x"])).float()
    assert torch.allclose(served(torch.from_numpy(data.preparation.raw(rows))), result.model()(prepared), atol=1e-6)
    assert json.loads(told["preparation.json"]) == data.preparation.as_dict()


def test_a_safetensors_file_says_what_was_done_to_the_rows(tmp_path: Path) -> None:
    result, _ = on_a_table(out=tmp_path / "run")
    prepared = result.experiment.federation.problem.data.preparation
    assert prepared is not None
    result.export(tmp_path / "run")
    for path in (result.save_model(tmp_path / "model"), tmp_path / "run" / "model-selected.safetensors"):
        with safe_open(path, "pt") as file:
            told = json.loads(file.metadata()["preparation"])
        assert told == prepared.as_dict()
    with pytest.raises(ft.ConfigError, match="raw must be left out for safetensors"):
        result.save_model(tmp_path / "model", raw=True)


def test_a_private_run_takes_no_rows_that_others_have_scaled() -> None:
    """An exported model would carry their means, and every upload depends on them without noise."""
    with pytest.raises(ft.ConfigError, match="must not be scaled or filled with means of training rows"):
        on_a_table(aggregator=ft.robust.private_mean(bound=1.0, noise=1.0), evaluation=None)


def test_rows_to_which_nothing_was_done_are_raw_already(tmp_path: Path) -> None:
    result = trained(ft.algorithms.fedavg(lr=0.1, steps=2))
    with pytest.raises(ft.ConfigError, match="raw must be left out: nothing was done to these rows"):
        result.save_model(tmp_path / "model", "torch", raw=True)


def test_images_as_bytes_are_scaled_inside_the_file(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (40, 5), dtype=np.uint8)
    table = ft.data.Table("bytes", {"x": x, "y": np.arange(40) % 2}, np.arange(40) % 4, normalise={"x": (127.0, 63.0)})
    algorithm = ft.algorithms.fedavg(lr=0.1, steps=1)
    result = ft.run(model=Own, data=table.split(seed=0), algorithm=algorithm, rounds=1)
    served = torch.export.load(result.save_model(tmp_path / "model", "torch", raw=True)).module()
    wanted = result.model()((torch.from_numpy(x).float() - 127.0) / 63.0)
    assert torch.allclose(served(torch.from_numpy(x)), wanted, atol=1e-6)


def test_statistics_that_are_personal_are_missed_too() -> None:
    """FedBN keeps BatchNorm's statistics at the clients, also where the layer has no weights."""
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5, affine=False), torch.nn.Linear(5, 4))
    result = ft.run(model=model, data=small_data(), algorithm=ft.algorithms.fedbn(0.1, 1), rounds=1, progress=False)
    with pytest.raises(ft.ConfigError, match=r"'1\.\w+' is personal"):
        result.model()
    assert float(result.model(client=0)[1].running_var.sum()) != 5.0


class SeveralOutputs(nn.Module):
    """Returns its logits after other tensors, one of which is its input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"features": 2 * x, "logits": self.layer(x), "given": x}


def test_the_output_of_an_onnx_file_is_the_one_that_was_scored(tmp_path: Path) -> None:
    """It was the first of the model's outputs; one that was an input as well made a file that nobody could load."""
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    rows = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    data = ft.data.FederatedData.from_clients([(rows, np.arange(6) % 3)] * 2)
    settings = {"algorithm": ft.algorithms.fedavg(0.1, 1), "rounds": 1, "evaluation": None, "progress": False}
    result = ft.run(model=SeveralOutputs(), data=data, **settings)  # type: ignore[arg-type]
    session = onnxruntime.InferenceSession(str(result.save_model(tmp_path / "model", "onnx")))
    assert [output.name for output in session.get_outputs()] == ["output"]
    logits = result.model()(torch.from_numpy(rows))["logits"].detach()
    # The first weights are torch's own draw: a logit near 0 may differ by more than a small share of itself.
    np.testing.assert_allclose(session.run(None, {"x": rows})[0], logits, rtol=1e-5, atol=1e-6)


def test_an_onnx_file_in_bfloat16_that_no_runtime_could_load_is_refused(tmp_path: Path) -> None:
    data = ft.data.FederatedData.from_clients([(np.ones((6, 4)), np.arange(6) % 3)] * 2)
    settings = {"algorithm": ft.algorithms.fedavg(0.1, 1), "rounds": 1, "evaluation": None, "progress": False}
    result = ft.run(model=nn.Linear(4, 3), data=data, dtype=torch.bfloat16, **settings)  # type: ignore[arg-type]
    with pytest.raises(ft.ConfigError, match=r"Got torch\.bfloat16: format='torch' holds it as it is; autocast=True"):
        result.save_model(tmp_path / "model", "onnx")
    assert not list(tmp_path.iterdir())
