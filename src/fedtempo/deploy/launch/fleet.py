"""Flower's fleet of nodes, served by this process: no command line, no worker and no app can be reached in it.

Of Flower's SuperLink this takes the state in memory and the routes for nodes. The run and the server's side of its
messages are calls in this process, so there is no port for them, and no token that could be read elsewhere.
"""

from __future__ import annotations

import gc
import secrets
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from fastapi import FastAPI
from flwr.app import ConfigRecord, Error, Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID, SUPERLINK_NODE_ID, ErrorCode
from flwr.proto.node_pb2 import NodeInfo
from flwr.server.superlink.linkstate.in_memory_linkstate import InMemoryLinkState
from flwr.supercore.constant import NOOP_FEDERATION_ID, NodeStatus, TaskType
from flwr.supercore.error import http_error_translator
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.object_store.in_memory_object_store import InMemoryObjectStore
from flwr.supercore.protobuf.translation import ProtobufTranslationMiddleware
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.routers.fleet.node_auth import NodeAuthMiddleware
from flwr.superlink.routers.fleet.router import router as fleet_router
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware

from fedtempo.deploy.launch.door import Door
from fedtempo.deploy.wire import WireError
from fedtempo.errors import TrainingError

COLLECT_AFTER = 64 << 20
NONCE = "nonce"
"""Makes each message's name one that no other node can guess, although all get the same model."""


class Fleet:
    """The nodes, and one run whose messages they answer."""

    def __init__(self, keys: bool) -> None:
        self.state = InMemoryLinkState(NoOpFederationManager(), InMemoryObjectStore())
        self.run = self._start_run()
        self._asked: dict[str, _Asked] = {}
        self._most: dict[int, int] = {}
        self._handled = 0
        """Bytes of messages since garbage was collected."""
        self.door = Door(self._app(keys), keys)

    def _start_run(self) -> int:
        """A run that is going on for as long as this process lives."""
        run = self.state.create_run(None, None, None, {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP)
        (info,) = self.state.get_run_info(run_ids=[run])
        task = info.primary_task_id
        if task is None or self.state.claim_task(task) is None or not self.state.activate_task(task):
            raise TrainingError("Flower did not start the run: another release than those it is tested with?")
        # The token is for a worker in another process. There is none; left here it would expire, and the run with it.
        self.state.task_token_store.clear()
        self.state.task_token_to_task_id.clear()
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run, SUPERLINK_NODE_ID, task
        return run

    def _app(self, keys: bool) -> FastAPI:
        """Flower's routes for nodes, with Flower's own check that a node speaks for itself only."""
        app = FastAPI(
            docs_url=None,
            redoc_url=None,
            openapi_url=None,
            middleware=[
                Middleware(BaseHTTPMiddleware, dispatch=http_error_translator),
                Middleware(ProtobufTranslationMiddleware),
                Middleware(NodeAuthMiddleware),
            ],
        )
        app.state.linkstate_factory = _Known(self.state)
        app.state.enable_supernode_auth = keys
        app.include_router(fleet_router)
        return app

    # ------------------------------------------------------------------ who is there

    def admit(self, keys: Collection[bytes]) -> None:
        """Let in the nodes with these public keys from now on, and nobody else."""
        if self.door.admitted is None:
            return
        for key in keys:
            if self.state.get_node_id_by_public_key(key) is None:
                self.state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, 0)
        gone = self.door.admitted - set(keys)
        self.door.admitted = set(keys)
        for key in gone:
            node = self.state.get_node_id_by_public_key(key)
            if node is not None:
                self.state.deactivate_node(node)

    def present(self) -> dict[int, bytes]:
        """The nodes that are connected now, and their public keys."""
        return {number: node.public_key for number, node in self.nodes().items()}

    def nodes(self) -> dict[int, NodeInfo]:
        """The nodes that are connected now."""
        return {node.node_id: node for node in self.state.get_node_info(statuses=[NodeStatus.ONLINE])}

    # ------------------------------------------------------------------ messages, as Flower's grid has them

    def get_node_ids(self) -> list[int]:
        """The numbers of the nodes that are connected now."""
        return list(self.nodes())

    def expect(self, node: int, most: int) -> None:
        """The answer to the next message for a node has at most so many bytes."""
        self._most[node] = most

    def _allow(self, node: int) -> None:
        """Let a node send what it is asked for now; thrice, as a connection may break while it is sent."""
        asked = [each.most for each in list(self._asked.values()) if each.node == node]
        self.door.allowance[self._key(node)] = 3 * sum(asked)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Lay out messages for their nodes; returns their names, and "" for a node that is not there."""
        connected = self.nodes()
        with no_object_id_recompute():  # what is the same for all nodes is hashed once
            return [self._pushed(message, connected) for message in messages]

    def _pushed(self, message: Message, connected: Mapping[int, NodeInfo]) -> str:
        message.content[NONCE] = ConfigRecord({NONCE: secrets.token_bytes(16)})
        name = message.metadata.__dict__["_message_id"] = message.object_id
        objects, store, node = get_all_nested_objects(message), self.state.object_store, message.metadata.dst_node_id
        for identifier in store.preregister(self.run, get_object_tree(message)):
            content = objects[identifier].deflate()
            store.put(identifier, content)
            self._handled += len(content)
        if node in connected:
            self._asked[name] = _Asked(node, self._most.pop(node, 0))
            self.door.overlong.discard(self._key(node))
            self._allow(node)
            if self.state.store_message_ins(remove_content_from_message(message)):
                return name
        self.forget([name])
        return ""

    def pull_messages(self, names: Iterable[str]) -> list[Message]:
        """The answers to these messages that have arrived whole; Flower's errors are answers, too."""
        found = [self._answer(name) for name in names]
        return [message for message in found if message is not None]

    def _answer(self, name: str) -> Message | None:
        asked = self._asked[name]
        if self._key(asked.node) in self.door.overlong:
            raise WireError("its answer is longer than what it was asked for")
        if asked.answer is None:
            asked.answer = next(iter(self.state.get_message_res({name}, self.run)), None)
        if asked.answer is None:
            return self._lost(name, asked)
        if asked.answer.has_error():
            return asked.answer
        identifier, store = asked.answer.metadata.message_id, self.state.object_store
        contents = {}
        for part in iterate_object_tree(store.get_object_tree(identifier)):
            content = store.get(part.object_id)
            if not content:
                return self._lost(name, asked)  # or the node is still sending
            contents[part.object_id] = content
            self._handled += len(content)
        message = inflate_object_from_contents(identifier, contents)
        return message if isinstance(message, Message) else None

    def _lost(self, name: str, asked: _Asked) -> Message | None:
        """An error if whoever took the message is gone: the node is not there, or was started again since."""
        message, node = self.state.message_ins_store.get(name), self.state.nodes[asked.node]
        if message is None or not message.metadata.delivered_at:
            return None
        taken, began = (datetime.fromisoformat(at) for at in (message.metadata.delivered_at, node.last_activated_at))
        if began <= taken and (node.online_until or 0.0) > time.time():
            return None
        return Message(Error(ErrorCode.NODE_UNAVAILABLE, "it went away before it answered"), reply_to=message)

    def forget(self, names: Iterable[str]) -> None:
        """Free what messages and their answers take; nobody waits for them any more."""
        for name in names:
            asked = self._asked.pop(name, None)
            answer = None if asked is None else asked.answer
            if asked is not None:
                self._allow(asked.node)
            late = self.state.message_ins_id_to_message_res_id.get(name)
            self.state.delete_messages({name})
            for identifier in (name, late, answer and answer.metadata.message_id):
                if identifier:
                    self.state.object_store.delete(identifier)

        if self._handled > COLLECT_AFTER:
            # Requests that are over are cycles of small objects, which hold their bodies: Python sees no need to look.
            self._handled = 0
            gc.collect()

    def _key(self, node: int) -> bytes:
        return self.state.nodes[node].public_key


@dataclass
class _Asked:
    """A message that waits for its answer."""

    node: int
    most: int
    """Bytes that its answer may have."""
    answer: Message | None = None
    """What the node has announced; the content may still be on its way."""


class _Known(NamedTuple):
    """What Flower's routes ask for their state."""

    only: InMemoryLinkState

    def state(self) -> InMemoryLinkState:
        return self.only
