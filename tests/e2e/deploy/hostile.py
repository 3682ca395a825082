"""Loaders that spoil the node they run in: `--loader tests.e2e.deploy.hostile:oversized`."""

from __future__ import annotations

import time
from pathlib import Path

from flwr.proto.fleet_pb2 import PushMessagesRequest, PushMessagesResponse

from fedtempo.config import read
from fedtempo.config.construct_data import make_data
from fedtempo.deploy import NodeData, flower, node
from fedtempo.deploy.launch import member
from fedtempo.deploy.launch.member import FleetHttpClient
from fedtempo.deploy.nodedata import NodeConfig, share

EXPERIMENT = "experiment.toml"
PARTS = 6
upload, packed, train, answer, push = (
    node.upload_to_bytes,
    flower._packed,
    node.Node.train,
    member.answer,
    FleetHttpClient.PushMessages,
)


def _share(config: NodeConfig, part: int) -> NodeData:
    path = Path(str(config["state-dir"])).parent / EXPERIMENT
    return share(make_data(read(path).data), part, PARTS)


def oversized(config: NodeConfig) -> NodeData:
    """Its answers are longer than what it is asked for."""
    node.upload_to_bytes = lambda given: upload(given) + bytes(8 << 20)
    return _share(config, 1)


def slow(config: NodeConfig) -> NodeData:
    """It trains for longer than the deadline."""

    def late(self: node.Node, order: bytes, tasks: bytes) -> list[bytes]:
        time.sleep(40)
        return train(self, order, tasks)

    node.Node.train = late  # type: ignore[method-assign]
    return _share(config, 2)


def doubled(config: NodeConfig) -> NodeData:
    """It answers twice for every client."""
    flower._packed = lambda parts: packed(parts if len(parts) < 2 else parts * 2)
    return _share(config, 3)


def repeating(config: NodeConfig) -> NodeData:
    """It sends every answer a second time, as another message."""

    def twice(self: FleetHttpClient, request: PushMessagesRequest) -> PushMessagesResponse:
        found = push(self, request)
        again = PushMessagesRequest()
        again.CopyFrom(request)
        again.messages_list[0].metadata.message_id = "f" * 64
        again.message_object_trees[0].object_id = "f" * 64
        print("wanted of the second:", len(push(self, again).objects_to_push), flush=True)
        return found

    FleetHttpClient.PushMessages = twice  # type: ignore[method-assign]
    return _share(config, 0)


def posing(config: NodeConfig) -> NodeData:
    """It answers in the name of another node."""

    def other(self: FleetHttpClient, request: PushMessagesRequest) -> PushMessagesResponse:
        if request.messages_list[0].metadata.message_type == "train":
            request.messages_list[0].metadata.src_node_id += 1
        return push(self, request)

    FleetHttpClient.PushMessages = other  # type: ignore[method-assign]
    return _share(config, 4)


def broken(config: NodeConfig) -> NodeData:
    """Its data are not there."""
    raise RuntimeError("no database")
