"""The fleet in the server's process: messages come and go, and nothing of them stays."""

from __future__ import annotations

import gc
import secrets
import weakref
from collections.abc import Iterator

import pytest

pytest.importorskip("flwr")

from flwr.app import Message
from flwr.supercore.task_identity import TaskIdentity

from fedtempo.deploy.flower import GridTransport
from fedtempo.deploy.launch.fleet import COLLECT_AFTER, Fleet
from fedtempo.deploy.membership.roster import Request

KEYS = (b"one", b"two", b"three")


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    before = dict(vars(TaskIdentity))
    made = Fleet(keys=True)
    made.admit(KEYS)
    yield made
    for name in ("_run_id", "_node_id", "_task_id"):
        setattr(TaskIdentity, name, before[name])


def connected(fleet: Fleet) -> list[int]:
    numbers = [fleet.state.get_node_id_by_public_key(key) for key in KEYS]
    found = [number for number in numbers if number is not None]
    assert all(fleet.state.activate_node(number, 15.0) for number in found)
    return found


def test_a_rounds_messages_are_freed(fleet: Fleet) -> None:
    """Also those of a node that never answers; what all get is kept once."""
    body, nodes = secrets.token_bytes(1 << 20), connected(fleet)
    transport = GridTransport(fleet, expect=fleet.expect, forget=fleet.forget)
    asked = {node: Request("train", [body, bytes([place])], [0], most=100) for place, node in enumerate(nodes)}
    assert not list(transport.exchange(asked, 0.1))
    assert not fleet.state.object_store.store and not fleet.state.message_ins_store  # type: ignore[attr-defined]
    assert not fleet._asked and not any(fleet.door.allowance.values())


class Cycle:
    """Something that only a search for garbage frees."""

    def __init__(self) -> None:
        self.itself = self


def test_large_messages_are_freed_although_requests_are_cycles(fleet: Fleet) -> None:
    """A server grew by every answer: Python counts objects, not the bytes that they hold."""
    node = connected(fleet)[0]
    transport = GridTransport(fleet, expect=fleet.expect, forget=fleet.forget)
    gc.disable()
    try:
        gone = weakref.ref(Cycle())
        assert not list(transport.exchange({node: Request("train", [bytes(COLLECT_AFTER // 2)])}, 0.0))
        assert gone() is not None
        assert not list(transport.exchange({node: Request("train", [bytes(COLLECT_AFTER // 2 + 1)])}, 0.0))
        assert gone() is None
    finally:
        gc.enable()


def test_a_model_for_many_nodes_is_kept_once(fleet: Fleet) -> None:
    body, nodes = secrets.token_bytes(1 << 20), connected(fleet)
    asked = {node: Request("train", [body, bytes([place])], [0], most=100) for place, node in enumerate(nodes)}
    sizes: list[int] = []

    def forget(names: object) -> None:
        sizes.append(sum(len(entry.content) for entry in fleet.state.object_store.store.values()))  # type: ignore[attr-defined]
        fleet.forget(names)  # type: ignore[arg-type]

    transport = GridTransport(fleet, expect=fleet.expect, forget=forget)
    assert not list(transport.exchange(asked, 0.1))
    assert len(body) < sizes[0] < 1.1 * len(body)


def test_a_node_that_was_started_again_has_lost_what_it_had_taken(fleet: Fleet) -> None:
    node = connected(fleet)[0]
    name = fleet.push_messages([message_for(fleet, node)])[0]
    assert fleet.pull_messages([name]) == []
    fleet.state.deactivate_node(node)
    fleet.state.activate_node(node, 15.0)
    assert fleet.pull_messages([name]) == [], "it has not taken it yet, and will"
    assert fleet.state.get_message_ins(node, 1)
    assert fleet.pull_messages([name]) == [], "it is at work"
    fleet.state.deactivate_node(node)
    fleet.state.activate_node(node, 15.0)
    (answer,) = fleet.pull_messages([name])
    assert answer.has_error() and answer.error.code == 5


def test_messages_have_names_that_nobody_can_guess(fleet: Fleet) -> None:
    node = connected(fleet)[0]
    first, second = (message_for(fleet, node) for _ in range(2))
    second.metadata.__dict__["_created_at"] = first.metadata.created_at
    assert len(set(fleet.push_messages([first, second]))) == 2


def test_a_node_that_is_admitted_no_more_is_gone_and_comes_back(fleet: Fleet) -> None:
    nodes = connected(fleet)
    fleet.admit(KEYS[1:])
    assert set(fleet.nodes()) == set(nodes[1:])
    fleet.admit(KEYS)
    assert connected_again(fleet, nodes[0])


def connected_again(fleet: Fleet, node: int) -> bool:
    return fleet.state.activate_node(node, 15.0) and node in fleet.nodes()


def message_for(fleet: Fleet, node: int) -> Message:
    from fedtempo.deploy.flower import _packed

    return Message(_packed([b"parts"]), dst_node_id=node, message_type="train")
