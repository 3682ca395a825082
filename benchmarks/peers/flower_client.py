"""The client half of the Flower runner: importable, so that Ray sends its name and not its code."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from benchmarks.peers.plan import batches, first_model, opened, tensor
from benchmarks.workloads import by_name

app = ClientApp()


@lru_cache(maxsize=1)
def prepared(name: str) -> tuple[Any, ...]:
    """What an actor keeps from client to client: data, model and optimizer."""
    torch.set_num_threads(1)
    workload = by_name(name)
    model = first_model(workload)
    inputs, labels = (tensor(column) for column in opened(workload))
    return workload, inputs, labels, model, torch.optim.SGD(model.parameters(), lr=workload.lr)


@app.train()
def train(message: Message, context: Context) -> Message:
    """One client's round."""
    config = message.content["config"]
    workload, inputs, labels, model, optimizer = prepared(config["workload"])
    client = int(context.node_config["partition-id"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    for x, y in batches(workload, inputs, labels, client, int(config["server-round"]) - 1):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    metrics = MetricRecord({"num-examples": workload.samples, "client": client})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)
