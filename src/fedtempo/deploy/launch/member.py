"""A node's side: connect, take what the server asks, answer with this node's own code, and go on until interrupted.

Flower's own node would fetch an app from the server and run it in a new process. This one runs nothing that it
receives: a message is numbers and tensors for the experiment that the node was started with.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import NamedTuple, TypeVar

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ObjectTree,
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_id,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedtempo.config import ExperimentFile
from fedtempo.deploy.blueprint import of_file
from fedtempo.deploy.flower import TYPES, answer, failure_in
from fedtempo.deploy.launch.door import MOST_BEHIND
from fedtempo.deploy.launch.plans import NodePlan
from fedtempo.deploy.launch.process import own_folder, quiet_flower
from fedtempo.deploy.membership.keys import NodeKeys, check_server, node_keys
from fedtempo.errors import ConfigError, first_line
from fedtempo.training.log import LOGGER

HEARTBEAT_SECONDS = 15.0
"""Flower's server takes a node for gone when it has not heard of it for twice as long."""
BETWEEN_HEARTBEATS = 5.0
SOONEST, LATEST = 0.2, 3.0
"""Seconds between looks for messages: soon after one, less and less often when there is none."""
BETWEEN_TRIES = 2.0
TRIES_SECONDS = 60.0
"""How long a broken connection is tried again within one answer; by then the server has given it up."""
KINDS = {message_type: kind for kind, message_type in TYPES.items()}
T = TypeVar("T")


def be_node(file: ExperimentFile, plan: NodePlan) -> None:
    """Be a node of an experiment until this process is interrupted."""
    keys = None if plan.keys is None else node_keys(plan.keys)
    blueprint, config = of_file(file), plan.config(file)

    def reply(message: Message) -> Message:
        kind = KINDS.get(message.metadata.message_type, message.metadata.message_type)
        answered = answer(kind, blueprint, None, message, config)
        failed = failure_in(answered)
        if failed is not None:
            LOGGER.warning("the server asked for %s, and got: %s", kind, failed)
        return answered

    own_folder(plan.state)
    with quiet_flower():
        Member(plan.server, keys, reply).run()


class BrokenError(Exception):
    """The server has to be connected anew, and why."""


class Member:
    """A node of the server at this address; `answer` makes a reply of a message."""

    def __init__(self, server: str, keys: NodeKeys | None, answer: Callable[[Message], Message]) -> None:
        self._server, self._keys, self._reply = server, keys, answer
        self._private, self._public = generate_key_pairs() if keys is None else _key_pair(keys.key)
        self._said = ""
        self._lost = threading.Event()

    def run(self) -> None:
        """Be a node for as long as this process is wanted."""
        while _wanted():
            try:
                with self._connected() as (client, node):
                    self._tell(f"connected to {self._server}")
                    self._serve(client, node)
            except BrokenError as broken:
                self._tell(str(broken))
            time.sleep(BETWEEN_TRIES)

    def _tell(self, line: str) -> None:
        """A line for people, once as long as nothing else happens."""
        if line and line != self._said:
            self._said = line
            LOGGER.info("%s", line)

    # ------------------------------------------------------------------ the connection

    @contextmanager
    def _connected(self) -> Iterator[tuple[FleetHttpClient, Node]]:
        """A connection by which the server knows that this node is here, until the end of the block."""
        signs = NodeAuthHttpInterceptor(self._private, self._public)
        authority = None if self._keys is None else self._keys.authority.read_bytes()
        with FleetHttpClient.from_server_address(self._server, authority is None, authority, [signs]) as client:
            node = self._activated(client)
            self._lost.clear()
            over = threading.Event()
            beats = threading.Thread(target=self._beat, args=(client, node, over), daemon=True)
            beats.start()
            try:
                yield client, node
            finally:
                over.set()
                beats.join()
                with suppress(httpx.HTTPError, RuntimeError):
                    client.DeactivateNode(DeactivateNodeRequest(node_id=node.node_id))

    def _activated(self, client: FleetHttpClient) -> Node:
        public = public_key_to_bytes(self._public)
        if self._keys is None:
            with suppress(httpx.HTTPStatusError):  # it is registered already
                self._asked(lambda: client.RegisterNode(RegisterNodeFleetRequest(public_key=public)))
        request = ActivateNodeRequest(public_key=public, heartbeat_interval=HEARTBEAT_SECONDS)
        try:
            return Node(node_id=self._asked(lambda: client.ActivateNode(request)).node_id)
        except httpx.HTTPStatusError as error:
            raise BrokenError(self._why_not_in(error.response)) from None

    def _asked(self, request: Callable[[], T]) -> T:
        """The answer to a request; `BrokenError` if there is none, `HTTPStatusError` if it is a no."""
        try:
            return request()
        except httpx.HTTPStatusError:
            raise
        except (httpx.HTTPError, ValueError) as error:
            self._check_certificate()
            raise BrokenError(f"{self._server} cannot be reached: {first_line(error)}; trying on") from None

    def _check_certificate(self) -> None:
        """A server with a certificate that nobody should trust ends the node; waiting would not help."""
        if self._keys is not None:
            host, _, port = self._server.rpartition(":")
            check_server(host, int(port), self._keys.authority)

    def _why_not_in(self, response: httpx.Response) -> str:
        """Why a server that answers does not take this node now."""
        if response.is_server_error:
            return f"{self._server} cannot answer ({response.status_code}); trying on"
        if response.status_code != httpx.codes.NOT_FOUND:
            return (
                "the server has a node with this key already, or had one half a minute ago; waiting for it to be gone"
            )
        with suppress(ValueError, TypeError):
            ahead = (datetime.now(UTC) - parsedate_to_datetime(response.headers["date"])).total_seconds()
            if abs(ahead) > MOST_BEHIND / 2:
                way = "ahead" if ahead > 0 else "behind"
                rule = "this machine's clock must agree with the server's within five minutes"
                return f"{rule}. It is {abs(ahead):.0f} s {way}"
        return f"{self._server} has not admitted this node's key, or no more; trying on"

    def _beat(self, client: FleetHttpClient, node: Node, over: threading.Event) -> None:
        request = SendNodeHeartbeatRequest(node=node, heartbeat_interval=HEARTBEAT_SECONDS)
        while not over.wait(BETWEEN_HEARTBEATS):
            try:
                if not client.SendNodeHeartbeat(request).success:
                    self._lost.set()
            except httpx.HTTPStatusError:  # the server was started anew, or lets this node in no more
                self._lost.set()
            except (httpx.HTTPError, ValueError, RuntimeError):
                continue

    # ------------------------------------------------------------------ messages

    def _serve(self, client: FleetHttpClient, node: Node) -> None:
        """Answer one message after the other until the server is gone, or does not know this node any more."""
        pause = SOONEST
        while _wanted() and not self._lost.is_set():
            try:
                taken = self._asked(lambda: client.PullMessages(PullMessagesRequest(node=node)))
                if taken.messages_list:
                    message = message_from_proto(taken.messages_list[0])
                    self._answer(client, node, message, taken.message_object_trees[0])
                    pause = SOONEST
                    continue
            except httpx.HTTPStatusError as error:
                if error.response.status_code == httpx.codes.NOT_FOUND:
                    raise BrokenError(self._why_not_in(error.response)) from None
                return
            self._lost.wait(pause)
            pause = min(LATEST, 1.3 * pause)

    def _answer(self, client: FleetHttpClient, node: Node, message: Message, tree: ObjectTree) -> None:
        identifier, run = message.metadata.message_id, message.metadata.run_id
        contents = {
            part.object_id: self._pulled(client, node, run, part.object_id) for part in iterate_object_tree(tree)
        }
        self._patiently(
            lambda: client.ConfirmMessageReceived(
                ConfirmMessageReceivedRequest(node=node, run_id=run, message_object_id=identifier)
            )
        )
        whole = inflate_object_from_contents(identifier, contents)
        if not isinstance(whole, Message):
            raise BrokenError("the server sent what is no message; connecting anew")
        whole.metadata.__dict__["_message_id"] = identifier
        began = time.monotonic()
        reply = self._reply(whole)
        seconds = time.monotonic() - began
        del whole, contents
        with no_object_id_recompute():
            reply.metadata.__dict__["_message_id"] = reply.object_id
            objects, tree = get_all_nested_objects(reply), get_object_tree(reply)
        bare = message_to_proto(remove_content_from_message(reply))
        announced = PushMessagesRequest(
            node=node, messages_list=[bare], message_object_trees=[tree], clientapp_runtime_list=[seconds]
        )
        found = self._patiently(lambda: client.PushMessages(announced))
        wanted = set(found.objects_to_push)
        for name, part in objects.items():
            if name in wanted:
                sent = PushObjectRequest(
                    node=node,
                    run_id=run,
                    session_id=found.session_id,
                    object_id=name,
                    object_content=part.deflate(),
                )
                self._patiently(lambda sent=sent: client.PushObject(sent))  # type: ignore[misc]

    def _pulled(self, client: FleetHttpClient, node: Node, run: int, name: str) -> bytes:
        request = PullObjectRequest(node=node, run_id=run, object_id=name)
        found = self._patiently(lambda: client.PullObject(request))
        if not found.object_available or get_object_id(found.object_content) != name:
            raise BrokenError("the server does not have what it announced; connecting anew")
        return bytes(found.object_content)

    def _patiently(self, request: Callable[[], T]) -> T:
        """The answer to a request within a message, also over a connection that breaks for a moment."""
        end = time.monotonic() + TRIES_SECONDS
        while True:
            try:
                return self._asked(request)
            except BrokenError:
                if self._lost.is_set() or time.monotonic() > end:
                    raise
            time.sleep(SOONEST)


class _Pair(NamedTuple):
    private: ec.EllipticCurvePrivateKey
    public: ec.EllipticCurvePublicKey


def _key_pair(path: Path) -> _Pair:
    try:
        private = load_ssh_private_key(path.read_bytes(), None)
    except ValueError as error:
        raise ConfigError(f"{path} must be a node's private key. It cannot be read: {first_line(error)}.") from None
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{path} must be a private key of an elliptic curve (fedtempo deploy init makes one).")
    return _Pair(private, private.public_key())


def _wanted() -> bool:
    """Whether this process is to go on: one that another program started for itself ends with it."""
    parent = multiprocessing.parent_process()
    return parent is None or parent.is_alive()
