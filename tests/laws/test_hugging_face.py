"""Models of transformers and peft, as their authors wrote them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedtempo as ft
from fedtempo.client.network import outputs_of, own_loss
from fedtempo.client.optimizers import adamw
from fedtempo.errors import ModelError
from fedtempo.params import matching
from fedtempo.schedules import per_round
from tests.later import Later
from tests.slow import slow_but

transformers = Later("transformers")
# peft reads a property that newer releases of transformers deprecate
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
VOCABULARY, LENGTH, CLASSES = 60, 7, 3
A, B = matching("*.lora_A.*"), matching("*.lora_B.*")


def sentences(masked: bool = True) -> ft.data.FederatedData:
    """Five clients of unequal size; a sentence is padded at its end."""
    rng = np.random.default_rng(2)
    clients = []
    for rows in (6, 9, 4, 8, 5):
        lengths = rng.integers(3, LENGTH + 1, rows)
        mask = (np.arange(LENGTH) < lengths[:, None]).astype(np.int64)
        columns = {"input_ids": rng.integers(1, VOCABULARY, (rows, LENGTH)) * mask, "y": rng.integers(0, CLASSES, rows)}
        clients.append({**columns, "attention_mask": mask} if masked else columns)
    return ft.data.FederatedData.from_clients(clients, validation=0, test=0.25)


def bert(dropout: float = 0.0, **settings: Any) -> nn.Module:
    configuration = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=16,
        num_labels=CLASSES,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        **settings,
    )
    return transformers.BertForSequenceClassification(configuration)


def run(algorithm: ft.Algorithm, model: Any = bert, **settings: Any) -> ft.Result:
    defaults = {"data": sentences(), "rounds": 2, "cohort": 3, "batch_size": 3, "dtype": torch.float64, "seed": 4}
    return ft.run(model=model, algorithm=algorithm, **{"evaluation": None, **defaults, **settings})


# ---------------------------------------------------------------------- outputs


def test_logits_are_found_in_every_form() -> None:
    logits, loss = torch.randn(4, 3), torch.tensor(0.5)
    output = transformers.modeling_outputs.SequenceClassifierOutput(loss=loss, logits=logits)
    for form in (logits, output, {"loss": loss, "logits": logits}, (loss, logits), (logits,), {"scores": logits}):
        assert outputs_of(form) is logits
    for form in (output, {"loss": loss, "logits": logits}, (loss, logits)):
        assert own_loss(form) is loss


@pytest.mark.parametrize(
    "form", [(torch.ones(2), torch.ones(2)), {"a": torch.ones(2), "b": torch.ones(2)}, {}, None, 3.0]
)
def test_outputs_that_could_mean_two_things_are_refused(form: Any) -> None:
    with pytest.raises(ModelError, match="model must return one tensor, or a dict with 'logits'; several outputs"):
        outputs_of(form)


@pytest.mark.parametrize("return_dict", [True, False])
def test_its_own_loss_is_ours(return_dict: bool) -> None:
    """For classes both are cross-entropy, so training with either leads to the same model; scores are made as usual."""
    make = lambda: bert(return_dict=return_dict)  # noqa: E731
    algorithm = ft.algorithms.fedavg(0.05, 3, optimizer=adamw())
    protocol = ft.Evaluation(steps=1)
    ours, own = (run(algorithm, make, loss=loss, evaluation=protocol, backend="serial") for loss in (None, "own"))
    for name, tensor in ours.params.items():
        torch.testing.assert_close(own.params[name], tensor, rtol=1e-12, atol=1e-12)
    assert own.history[-1].scores is not None
    assert own.history[-1].scores.metric == "accuracy"


def test_a_model_without_a_loss_says_so() -> None:
    class Mute(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Embedding(VOCABULARY, CLASSES)

        def forward(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
            return self.layer(input_ids).mean(1)

    with pytest.raises(ModelError, match="return its loss as one number when it is given 'labels'"):
        run(ft.algorithms.fedavg(0.1, 1), Mute, data=sentences(masked=False), loss="own")


def test_a_model_that_looks_at_numbers_runs_one_by_one() -> None:
    """transformers looks at the values of the mask, so `auto` takes serial code."""
    result = run(ft.algorithms.fedavg(0.05, 1))
    assert result.experiment.backend.name == "serial"


def test_without_a_mask_clients_run_side_by_side() -> None:
    make = lambda: bert(dropout=0.1, attn_implementation="eager")  # noqa: E731
    settings = {"data": sentences(masked=False), "loss": "own"}
    one, other = (run(ft.algorithms.fedavg(0.05, 2), make, backend=b, **settings) for b in ("serial", "vectorised"))
    for name, tensor in one.params.items():
        torch.testing.assert_close(other.params[name], tensor, rtol=1e-10, atol=1e-10)


# ---------------------------------------------------------------------- LoRA


def lora(rank: int = 2) -> nn.Module:
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(task_type="SEQ_CLS", r=rank, target_modules=["query", "value"], lora_dropout=0.1)
    model: nn.Module = peft.get_peft_model(bert(), settings)
    return model


def test_only_adapters_are_trained_sent_and_stored(tmp_path: Path) -> None:
    result = run(
        ft.algorithms.fedavg(0.1, 2, optimizer=adamw()), lora, out=tmp_path / "run", evaluation=ft.Evaluation(steps=1)
    )
    model = lora()
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert result.experiment.federation.trained_names == trained
    first = result.experiment.first_shared
    assert all(not torch.equal(first[n], result.params[n]) for n in trained)
    adapters = sum(p.numel() * 8 for p in model.parameters() if p.requires_grad)
    costs, base = result.history[-1].total_costs, sum(p.numel() * 8 for p in model.parameters()) - adapters
    assert costs.bytes_up == 2 * 3 * adapters
    asked = {client for report in result.history for client in report.clients}
    buffers = sum(b.numel() * b.element_size() for b in model.buffers())
    assert costs.bytes_down == 2 * 3 * adapters + len(asked) * (base + buffers), "the base goes down once a client"


LINES: dict[str, Callable[[], ft.Algorithm]] = {
    "FedSA-LoRA: A is shared, B is personal": lambda: ft.algorithms.fedper(0.1, 2, head=B),
    "FFA-LoRA: A stays as it is": lambda: ft.algorithms.fedavg(0.1, 2, trains=~A),
    "personal adapters, a shared classifier": lambda: ft.algorithms.fedper(0.1, 2, head=A | B),
}


@pytest.mark.parametrize("name", LINES)
def test_each_way_to_share_adapters_is_a_line(name: str) -> None:
    result = run(LINES[name](), lora)
    a, b = A.names(lora()), B.names(lora())
    sent, kept = result.experiment.federation.trained_names, set(result.client_state(0))
    classifier = {n for n, p in lora().named_parameters() if p.requires_grad} - a - b
    expected = {
        "FedSA-LoRA: A is shared, B is personal": (a | classifier, b),
        "FFA-LoRA: A stays as it is": (b | classifier, set()),
        "personal adapters, a shared classifier": (classifier, a | b),
    }
    assert (sent, kept) == expected[name]


def test_a_personal_b_starts_at_zero_and_a_is_drawn() -> None:
    """LoRA begins as the base model: B is zero for everybody, whatever `reset_parameters` of its layer would draw."""
    federation = run(ft.algorithms.fedper(0.1, 1, head=A | B), lora, rounds=1).experiment.federation
    one, two = (federation.first_personal(client, federation.first_shared()) for client in (0, 1))
    assert all(not one[n].any() for n in B.names(lora()))
    assert all(not torch.equal(one[n], two[n]) for n in A.names(lora()))


MECHANISMS = ["fednar", "ditto", "averaged states"]
EVERY: dict[str, Callable[[], ft.Algorithm]] = {
    "fednar": lambda: ft.algorithms.fednar(
        ft.algorithms.fedavg(per_round(0.1, 0.9), 2, optimizer=adamw(weight_decay=0.0)), weight_decay=0.1, max_norm=0.5
    ),
    "feddecay": lambda: ft.algorithms.feddecay(0.1, 0.5, 3),
    "fedprox": lambda: ft.algorithms.fedprox(0.1, 2),
    "scaffold": lambda: ft.algorithms.scaffold(0.1, 2),
    "fedadam": lambda: ft.algorithms.fedadam(0.1, 2),
    "fedexp": lambda: ft.algorithms.fedexp(0.1, 2),
    "ditto": lambda: ft.algorithms.ditto(0.1, 2),
    "pfedme": lambda: ft.algorithms.pfedme(0.01, 0.05, inner_steps=2, local_rounds=1),
    "fedrep": lambda: ft.algorithms.fedrep(0.1, 1, 1, head=matching("*.modules_to_save.*")),
    "local_only": lambda: ft.algorithms.local_only(0.1, 2),
    "kept states": lambda: ft.algorithms.fedavg(0.1, 2, optimizer=adamw(state="keep")),
    "averaged states": lambda: ft.algorithms.fedavg(0.1, 2, optimizer=adamw(state="average")),
}


@pytest.mark.parametrize("name", slow_but(MECHANISMS, EVERY, "one algorithm of every mechanism runs every time"))
def test_algorithms_work_on_adapters(name: str) -> None:
    result = run(EVERY[name](), lora, evaluation=ft.Evaluation(steps=1))
    frozen = {n for n, p in lora().named_parameters() if not p.requires_grad}
    first = result.experiment.first_shared
    assert all(torch.equal(first[n], result.params[n]) for n in frozen & set(result.params)), "the base never moves"
    assert np.isfinite(result.history[-1].loss)
    assert not frozen & set(result.client_state(0)), "no client stores the base"


def test_the_published_bert_tiny_configuration(real_data: Path) -> None:
    peft = pytest.importorskip("peft")

    def model() -> nn.Module:
        configuration = transformers.BertConfig.from_pretrained(real_data / "bert_tiny", num_labels=CLASSES)
        settings = peft.LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "value"])
        return peft.get_peft_model(transformers.BertForSequenceClassification(configuration), settings)

    result = run(ft.algorithms.fedper(1e-3, 2, head=B, optimizer=adamw()), model, dtype=torch.float32)
    assert result.history[0].costs.bytes_up < 100_000
