"""The client half of the experiments in Flower: what a client keeps is in its context, from message to message."""

from __future__ import annotations

from functools import lru_cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from benchmarks.experiments.data import columns
from benchmarks.experiments.methods import METHODS, scored
from benchmarks.experiments.plan import by_name
from benchmarks.experiments.site import Site, Tensors

app = ClientApp()


@lru_cache(maxsize=1)
def prepared(name: str) -> Site:
    """What an actor keeps from client to client: data and network."""
    torch.set_num_threads(1)
    experiment = by_name(name)
    return Site(experiment, columns(experiment), lean=False)


@lru_cache(maxsize=1)
def first_kept(name: str, method: str) -> Tensors:
    """What every client keeps at first."""
    return METHODS[method].first(prepared(name))[1]


def _kept(context: Context, name: str, method: str) -> Tensors:
    if method in context.state.array_records:
        return dict(context.state.array_records[method].to_torch_state_dict())
    return first_kept(name, method)


@app.query()
def who(message: Message, context: Context) -> Message:
    """The number of this client: Flower's own node numbers are random."""
    number = MetricRecord({"client": int(context.node_config["partition-id"])})
    return Message(RecordDict({"who": number}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """One client's round."""
    config, client = message.content["config"], int(context.node_config["partition-id"])
    name, method = str(config["experiment"]), str(config["method"])
    site, sent = prepared(name), dict(message.content["arrays"].to_torch_state_dict())
    upload, kept = METHODS[method].client(site, client, sent, _kept(context, name, method))
    if kept:
        context.state[method] = ArrayRecord(kept)
    return Message(RecordDict({"arrays": ArrayRecord(upload)}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """One user's scores."""
    config, client = message.content["config"], int(context.node_config["partition-id"])
    name, method = str(config["experiment"]), str(config["method"])
    sent = dict(message.content["arrays"].to_torch_state_dict())
    found = scored(prepared(name), METHODS[method], client, sent, _kept(context, name, method))
    return Message(RecordDict({"metrics": MetricRecord({"scores": found})}), reply_to=message)
