"""The adapter: the one module that knows Flower's types."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedtempo.deploy.blueprint import Blueprint
from fedtempo.deploy.node import NODES
from fedtempo.deploy.orders import one_short_line, reason_of
from fedtempo.deploy.roster import NOT_CONNECTED, Reply, Request
from fedtempo.deploy.server import Plan, serve_run
from fedtempo.training.log import lines_on_stderr

RECORD = "fedtempo"
FAILED = "failed"
"""Where a node says why it has no answer."""
NODE_UNAVAILABLE = 5
"""Flower's code for a node that was asked and went away."""
MESSAGE_GONE = (3, 4)
"""Flower's codes for a message or a reply that it no longer has: its time to live, our deadline, is over."""
TYPES = {"census": "query.census", "train": "train", "score": "evaluate", "settle": "query.settle"}
BETWEEN_PULLS = 0.25
"""Seconds between looks for replies."""


def apps(blueprint: Blueprint, plan: Plan, state: Path | None) -> tuple[ServerApp, ClientApp]:
    """A server that runs our training loop on Flower's grid, and a client that runs our client program on its node."""
    server, client = ServerApp(), ClientApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        with lines_on_stderr():
            serve_run(GridTransport(grid), blueprint, plan)

    @client.query("census")
    def census(message: Message, context: Context) -> Message:
        return answer("census", blueprint, state, message, context)

    @client.query("settle")
    def settle(message: Message, context: Context) -> Message:
        return answer("settle", blueprint, state, message, context)

    @client.train()
    def train(message: Message, context: Context) -> Message:
        return answer("train", blueprint, state, message, context)

    @client.evaluate()
    def score(message: Message, context: Context) -> Message:
        return answer("score", blueprint, state, message, context)

    return server, client


def answer(kind: str, blueprint: Blueprint, state: Path | None, message: Message, context: Context) -> Message:
    """A node's answer, or why it has none: what its data, its loader or the message is wrong with."""
    try:
        node = NODES.get(blueprint, dict(context.node_config), state)
        if kind == "census":
            content = _packed(node.census())
        else:
            works: dict[str, Callable[..., list[bytes]]]
            works = {"train": node.train, "score": node.score, "settle": node.settle}
            content = _packed(works[kind](*_unpacked(message)))
    except Exception as error:  # Flower would say that the app failed, and not why
        content = RecordDict({RECORD: ConfigRecord({FAILED: reason_of(error)})})
    return Message(content, reply_to=message)


class GridTransport:
    """The way to Flower's nodes."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def nodes(self) -> list[int]:
        """The nodes that are connected now."""
        return sorted(self._grid.get_node_ids())

    def exchange(self, requests: Mapping[int, Request], seconds: float | None) -> Iterator[Reply]:
        """Ask nodes and yield their replies as they come. Errors are replies with a reason."""
        end = None if seconds is None else time.monotonic() + seconds
        asked = {node: request.clients for node, request in requests.items()}
        messages = [
            Message(_packed(request.parts), dst_node_id=node, message_type=TYPES[request.kind], ttl=seconds)
            for node, request in requests.items()
        ]
        identifiers = list(self._grid.push_messages(messages)) if messages else []
        waiting = dict(zip(identifiers, requests, strict=False))
        for node in list(requests)[len(identifiers) :] + [n for i, n in waiting.items() if not i]:
            yield Reply(node, asked[node], [], NOT_CONNECTED, gone=True)
        waiting = {identifier: node for identifier, node in waiting.items() if identifier}
        while waiting and (end is None or time.monotonic() < end):
            for identifier, node in list(waiting.items()):
                reply = self._pull(identifier, node, asked[node], expires=end is not None)
                if reply is not None:
                    del waiting[identifier]
                    yield reply
            time.sleep(BETWEEN_PULLS if waiting else 0)

    def _pull(self, identifier: str, node: int, clients: Sequence[int], expires: bool) -> Reply | None:
        """The reply to one message, if it is there. Pulled alone, one that Flower cannot read costs its node only."""
        try:
            found = list(self._grid.pull_messages([identifier]))
            # On a busy machine Flower may say that a message has expired just before our own deadline has passed.
            late = expires and any(message.has_error() and message.error.code in MESSAGE_GONE for message in found)
            return _reply(node, clients, found[0]) if found and not late else None
        except (OSError, httpx.HTTPError):  # the SuperLink is gone
            raise
        except Exception as error:
            return Reply(node, clients, [], one_short_line(f"malformed: {type(error).__name__}: {error}"))


def simulate(server: ServerApp, client: ClientApp, nodes: int, processors: int) -> None:
    """Run both apps on Flower's simulation engine, on this machine."""
    from flwr.simulation import run_simulation  # brings Ray, which nodes of a deployment do without

    resources: dict[str, dict[str, Any]] = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": processors},
    }
    run_simulation(server, client, num_supernodes=nodes, backend_config=resources)


def _reply(node: int, clients: Sequence[int], message: Message) -> Reply:
    if message.has_error():
        error = message.error
        reason = one_short_line(f"error {error.code}: {error.reason or 'no reason given'}")
        return Reply(node, clients, [], reason, gone=error.code == NODE_UNAVAILABLE)
    record = message.content.get(RECORD)
    failed = record.get(FAILED) if isinstance(record, ConfigRecord) else None
    if isinstance(failed, str):
        return Reply(node, clients, [], one_short_line(failed) or "no reason given")
    return Reply(node, clients, _unpacked(message))


def _packed(parts: list[bytes]) -> RecordDict:
    return RecordDict({RECORD: ConfigRecord({"parts": list(parts)})})


def _unpacked(message: Message) -> list[bytes]:
    record = message.content[RECORD]
    parts = record["parts"] if isinstance(record, ConfigRecord) else None
    if not isinstance(parts, list) or not all(isinstance(part, bytes) for part in parts):
        raise TypeError("a message must be a list of bytes")
    return [part for part in parts if isinstance(part, bytes)]
