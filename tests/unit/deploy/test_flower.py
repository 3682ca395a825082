"""The way to Flower's nodes: replies that are errors, malformed, missing or late are reasons, never a crash."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

import fedtempo as ft
from fedtempo.deploy import NodeData
from fedtempo.deploy.blueprint import blueprint_of
from fedtempo.deploy.flower import GridTransport, answer
from fedtempo.deploy.membership.roster import Reply, Request
from tests.e2e.deploy.wires import FOUR, experiment


@pytest.fixture(autouse=True)
def within_a_run() -> Iterable[None]:
    """Flower makes messages only inside a run."""
    before = {name: getattr(TaskIdentity, f"_{name}", None) for name in ("run_id", "node_id", "task_id")}
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    yield
    for name, value in before.items():
        setattr(TaskIdentity, f"_{name}", value)


class SmallGrid:
    """The part of Flower's grid that is used, with nodes that answer at once and as the test says."""

    def __init__(self, answer: Callable[[Message], Message | None]) -> None:
        self.answer = answer
        self.sent: dict[str, Message] = {}

    def get_node_ids(self) -> list[int]:
        return [5, 3]

    def push_messages(self, messages: Iterable[Message]) -> list[str | None]:
        numbered = {f"m{message.metadata.dst_node_id}": message for message in messages}
        self.sent.update(numbered)
        return [None if message.metadata.dst_node_id == 9 else name for name, message in numbered.items()]

    def pull_messages(self, identifiers: list[str]) -> list[Message]:
        found = [self.answer(self.sent[identifier]) for identifier in identifiers]
        return [message for message in found if message is not None]


def content(value: object) -> RecordDict:
    return RecordDict({"fedtempo": ConfigRecord({"parts": value})})  # type: ignore[dict-item]


def ask(answer: Callable[[Message], Message | None], nodes: Iterable[int] = (3,), seconds: float = 5.0) -> list[Reply]:
    transport = GridTransport(SmallGrid(answer))  # type: ignore[arg-type]
    assert transport.nodes() == [3, 5]
    return list(transport.exchange({node: Request("train", [b"a"], [node]) for node in nodes}, seconds))


def test_an_answer_is_its_parts() -> None:
    (reply,) = ask(lambda message: Message(content([b"x", b"y"]), reply_to=message))
    assert reply == Reply(3, [3], [b"x", b"y"])


WRONG: dict[str, Callable[[Message], Message]] = {
    "an error": lambda message: Message(Error(2, "it fell\n\x1b[31m over"), reply_to=message),
    "no record": lambda message: Message(RecordDict(), reply_to=message),
    "text": lambda message: Message(content("text"), reply_to=message),
    "numbers": lambda message: Message(content([1, 2]), reply_to=message),
    "another record": lambda message: Message(RecordDict({"fedtempo": MetricRecord({"a": 1})}), reply_to=message),
    "what Flower cannot read": lambda message: _fail(),
}


def _fail() -> Message:
    raise ValueError("not an object of mine")


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_a_reason(name: str) -> None:
    (reply,) = ask(WRONG[name])
    assert reply.parts == []
    assert reply.error.startswith("error 2: it fell [31m over" if name == "an error" else "malformed: ")
    assert reply.error.isprintable()


def test_a_node_that_cannot_be_reached_is_not_connected() -> None:
    replies = ask(lambda message: Message(content([b"x"]), reply_to=message), nodes=(9, 3))
    assert {reply.node: reply.error for reply in replies} == {9: "not connected", 3: ""}


def test_nobody_waits_beyond_the_deadline() -> None:
    began = time.monotonic()
    assert ask(lambda message: None, seconds=0.6) == []
    assert 0.5 < time.monotonic() - began < 30


@pytest.mark.parametrize("code", [3, 4])
def test_a_message_that_has_expired_is_no_answer_within_the_deadline(code: int) -> None:
    assert (
        ask(lambda message: Message(Error(code, "may have expired due to its TTL"), reply_to=message), seconds=0.3)
        == []
    )


def test_a_lost_superlink_ends_the_run() -> None:
    def gone(message: Message) -> Message:
        raise ConnectionRefusedError("gone")

    with pytest.raises(ConnectionRefusedError):
        ask(gone)


# ---------------------------------------------------------------------- what a node says


def raising(config: dict[str, object]) -> NodeData:
    """A loader whose data are not there."""
    raise RuntimeError("the database is\x1b[31m not there")


@pytest.mark.parametrize("kind", ["census", "train", "score"])
def test_a_loader_that_raises_is_its_nodes_failure_with_its_reason(
    kind: str, digits: ft.data.FederatedData, tmp_path: Path
) -> None:
    blueprint = blueprint_of(experiment(digits, FOUR["FedDecay"]()))
    config = {"data-loader": f"{__name__}:raising"}

    def node(message: Message) -> Message:
        return answer(kind, blueprint, tmp_path, message, config)

    (reply,) = ask(node)
    assert reply.error.endswith("raised RuntimeError: the database is [31m not there")
    assert reply.error.startswith("loader must return this node's clients.")
    assert not reply.gone


def test_a_node_that_went_away_is_told_from_one_that_failed() -> None:
    gone = ask(lambda message: Message(Error(5, "Node Unavailable"), reply_to=message))
    failed = ask(lambda message: Message(Error(2, "it fell over"), reply_to=message))
    assert [reply.gone for reply in gone + failed] == [True, False]
