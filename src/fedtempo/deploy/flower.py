"""The adapter: the one module that knows Flower's types."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import httpx
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedtempo.backends.ray_cluster import LOCAL, connected
from fedtempo.deploy.blueprint import Blueprint
from fedtempo.deploy.membership.roster import NOT_CONNECTED, Reply, Request
from fedtempo.deploy.node import NODES
from fedtempo.deploy.nodedata import NodeConfig
from fedtempo.deploy.orders import one_short_line, reason_of
from fedtempo.deploy.server import Plan, serve_run
from fedtempo.deploy.wire import WireError
from fedtempo.support.terminal import say
from fedtempo.training.log import lines_to

RECORD = "fedtempo"
FAILED = "failed"
"""Where a node says why it has no answer."""
NODE_UNAVAILABLE = 5
"""Flower's code for a node that was asked and went away."""
MESSAGE_GONE = (3, 4)
"""Flower's codes for a message or a reply that it no longer has: its time to live, our deadline, is over."""
TYPES = {"census": "query.census", "train": "train", "score": "evaluate", "settle": "query.settle"}
BETWEEN_PULLS = 0.25
"""Seconds between questions to Flower whether replies have come."""
BETWEEN_LOOKS = 0.05
"""Seconds between looks for replies that come to this process."""


def apps(blueprint: Blueprint, plan: Plan, state: Path | None) -> tuple[ServerApp, ClientApp]:
    """A server that runs our training loop on Flower's grid, and a client that runs our client program on its node."""
    server, client = ServerApp(), ClientApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        with lines_to(lambda line: say(f"fedtempo: {line}", error=True)):
            serve_run(GridTransport(grid), blueprint, plan)

    @client.query("census")
    def census(message: Message, context: Context) -> Message:
        return answer("census", blueprint, state, message, dict(context.node_config))

    @client.query("settle")
    def settle(message: Message, context: Context) -> Message:
        return answer("settle", blueprint, state, message, dict(context.node_config))

    @client.train()
    def train(message: Message, context: Context) -> Message:
        return answer("train", blueprint, state, message, dict(context.node_config))

    @client.evaluate()
    def score(message: Message, context: Context) -> Message:
        return answer("score", blueprint, state, message, dict(context.node_config))

    return server, client


def answer(kind: str, blueprint: Blueprint, state: Path | None, message: Message, config: NodeConfig) -> Message:
    """A node's answer, or why it has none: what its data, its loader or the message is wrong with."""
    try:
        node = NODES.get(blueprint, dict(config), state)
        if kind == "census":
            content = _packed(node.census())
        else:
            works: dict[str, Callable[..., list[bytes]]]
            works = {"train": node.train, "score": node.score, "settle": node.settle}
            content = _packed(works[kind](*_unpacked(message)))
    except Exception as error:  # Flower would say that the app failed, and not why
        content = RecordDict({RECORD: ConfigRecord({FAILED: reason_of(error)})})
    return Message(content, reply_to=message)


def failure_in(answered: Message) -> str | None:
    """Why an answer says that there is none."""
    record = answered.content.get(RECORD)
    failed = record.get(FAILED) if isinstance(record, ConfigRecord) else None
    return one_short_line(failed) or "no reason given" if isinstance(failed, str) else None


class Messenger(Protocol):
    """What is used of Flower's grid."""

    def get_node_ids(self) -> Iterable[int]:
        """The nodes that are connected."""
        ...

    def push_messages(self, messages: Iterable[Message], /) -> Iterable[str | None]:
        """Send messages; returns their names."""
        ...

    def pull_messages(self, message_ids: Iterable[str], /) -> Iterable[Message]:
        """The replies that are there."""
        ...


class GridTransport:
    """The way to Flower's nodes."""

    def __init__(
        self,
        grid: Messenger,
        name: Callable[[int], str] = "node {}".format,
        expect: Callable[[int, int], None] | None = None,
        forget: Callable[[Iterable[str]], None] | None = None,
    ) -> None:
        """`expect` gets a node and the bytes of its answer; `forget` frees messages that nobody waits for any more."""
        self._grid, self._name, self._expect, self._forget = grid, name, expect, forget

    def name(self, node: int) -> str:
        """What a node is called in lines for people."""
        return self._name(node)

    def nodes(self) -> list[int]:
        """The nodes that are connected now."""
        return sorted(self._grid.get_node_ids())

    def exchange(self, requests: Mapping[int, Request], seconds: float | None) -> Iterator[Reply]:
        """Ask nodes and yield their replies as they come. Errors are replies with a reason."""
        end = None if seconds is None else time.monotonic() + seconds
        asked = {node: request.clients for node, request in requests.items()}
        for node, request in requests.items():
            if self._expect is not None:
                self._expect(node, request.most)
        # A message that nobody waits for must not be answered. One that can be taken back needs no clocks that agree.
        ttl = seconds if self._forget is None else None
        between = BETWEEN_PULLS if self._forget is None else min(1.0, BETWEEN_LOOKS * (1 + len(requests) / 20))
        records: dict[int, ConfigRecord] = {}
        messages = [
            Message(_apart(request.parts, records), dst_node_id=node, message_type=TYPES[request.kind], ttl=ttl)
            for node, request in requests.items()
        ]
        identifiers = list(self._grid.push_messages(messages)) if messages else []
        del messages, records
        sent = dict(zip(identifiers, requests, strict=False))
        waiting = {identifier: node for identifier, node in sent.items() if identifier}
        try:
            for node in list(requests)[len(identifiers) :] + [n for i, n in sent.items() if not i]:
                yield Reply(node, asked[node], [], NOT_CONNECTED, gone=True)
            while waiting and (end is None or time.monotonic() < end):
                for identifier, node in list(waiting.items()):
                    reply = self._pull(identifier, node, asked[node], expires=ttl is not None)
                    if reply is not None:
                        del waiting[identifier]
                        self._over({identifier})
                        yield reply
                time.sleep(between if waiting else 0)
        finally:
            self._over(waiting)

    def _over(self, names: Collection[str]) -> None:
        if self._forget is not None:
            self._forget(names)

    def _pull(self, identifier: str, node: int, clients: Sequence[int], expires: bool) -> Reply | None:
        """The reply to one message, if it is there. Pulled alone, one that Flower cannot read costs its node only."""
        try:
            found = list(self._grid.pull_messages([identifier]))
            # On a busy machine Flower may say that a message has expired just before our own deadline has passed.
            late = expires and any(message.has_error() and message.error.code in MESSAGE_GONE for message in found)
            return _reply(node, clients, found[0]) if found and not late else None
        except (OSError, httpx.HTTPError):  # the SuperLink is gone
            raise
        except WireError as error:
            return Reply(node, clients, [], str(error))
        except Exception as error:
            return Reply(node, clients, [], one_short_line(f"malformed: {type(error).__name__}: {error}"))


def simulate(server: ServerApp, client: ClientApp, nodes: int, processors: int) -> None:
    """Run both apps on Flower's simulation engine, on this machine, with a Ray cluster that listens on loopback."""
    from flwr.simulation import run_simulation  # brings Ray, which nodes of a deployment do without

    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*sys.path, os.environ.get("PYTHONPATH")]))
    with connected(LOCAL, processors):  # Flower uses the Ray that it finds; its own would listen on all interfaces
        resources: dict[str, dict[str, Any]] = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
        run_simulation(server, client, num_supernodes=nodes, backend_config=resources)


def _reply(node: int, clients: Sequence[int], message: Message) -> Reply:
    if message.has_error():
        error = message.error
        reason = one_short_line(f"error {error.code}: {error.reason or 'no reason given'}")
        return Reply(node, clients, [], reason, gone=error.code == NODE_UNAVAILABLE)
    failed = failure_in(message)
    return Reply(node, clients, _unpacked(message)) if failed is None else Reply(node, clients, [], failed)


def _packed(parts: list[bytes]) -> RecordDict:
    return RecordDict({RECORD: ConfigRecord({"parts": list(parts)})})


def _apart(parts: list[bytes], records: dict[int, ConfigRecord]) -> RecordDict:
    """A request, each part in a record of its own: Flower keeps a record once for all nodes that get the same."""
    made = [records.setdefault(id(part), ConfigRecord({"parts": [part]})) for part in parts]
    return RecordDict({_record(number): record for number, record in enumerate(made)}) if made else _packed([])


def _record(number: int) -> str:
    return f"{RECORD}-{number}" if number else RECORD


def _unpacked(message: Message) -> list[bytes]:
    found: list[bytes] = []
    for number in range(max(1, len(message.content))):
        record = message.content.get(_record(number))
        if number and record is None:
            break
        parts = record["parts"] if isinstance(record, ConfigRecord) else None
        if not isinstance(parts, list) or not all(isinstance(part, bytes) for part in parts):
            raise TypeError("a message must be a list of bytes")
        found += [part for part in parts if isinstance(part, bytes)]
    return found
