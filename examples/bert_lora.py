"""BERT-tiny with LoRA by peft: the classifier is shared, every client keeps adapters of its own.

Needs the extra `peft` and the configuration of BERT-tiny in the folder bert_tiny of FEDTEMPO_DATA.
Weights are drawn at random and sentences are made up, so the scores say that it learns, not how good BERT is.
Run: python examples/bert_lora.py     FEDTEMPO_QUICK=1 makes it take seconds.
"""

import os
from pathlib import Path

import numpy as np
import peft
import transformers
from torch import nn

import fedtempo as ft
from fedtempo.params import matching

QUICK = "FEDTEMPO_QUICK" in os.environ
FOLDER = Path(os.environ["FEDTEMPO_DATA"]) / "bert_tiny"
LENGTH, GOOD, BAD = 8, range(2000, 2020), range(3000, 3020)


def sentences(clients: int, each: int) -> ft.data.FederatedData:
    """Token numbers; a sentence is good (1) if it holds more good words than bad ones."""
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(clients):
        y = rng.integers(0, 2, each)
        words = np.where(rng.random((each, LENGTH)) < np.where(y, 0.85, 0.15)[:, None], 2000, 3000)
        rows.append({"input_ids": words + rng.integers(0, 20, (each, LENGTH)), "y": y})
    return ft.data.FederatedData.from_clients(rows, test=0.25)


def model() -> nn.Module:
    """BERT-tiny with rank-4 adapters on queries and values; peft freezes the rest but the classifier."""
    configuration = transformers.BertConfig.from_pretrained(FOLDER, num_labels=2)
    lora = peft.LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "value"])
    return peft.get_peft_model(transformers.BertForSequenceClassification(configuration), lora)


adapters = matching("*.lora_*")
result = ft.run(
    model=model,
    data=sentences(clients=4 if QUICK else 12, each=16 if QUICK else 40),
    algorithm=ft.algorithms.fedper(lr=3e-3, steps=4, head=adapters, optimizer=ft.optimizers.adamw()),
    rounds=2 if QUICK else 15,
    batch_size=8,
    evaluation=ft.Evaluation(every=2 if QUICK else 5, steps=1),
)
everything = sum(p.numel() * p.element_size() for p in result.params.values())
up = result.history[0].costs.bytes_up / len(result.history[0].clients)
print(f"the model has {everything:,} bytes; a client sends {up:,.0f} of them in a round")
print(f"client 0 keeps {len(result.client_state(0))} tensors of its own, all of them adapters")
print(result.table())
