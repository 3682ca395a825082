"""What the server asks of nodes and what they answer, besides uploads: orders, work lists, scores and failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fedtempo.client.objectives import Received
from fedtempo.data.parts import Part
from fedtempo.deploy.wire import HASH, MARK, NOTHING_KEPT, Contents, Layout, WireError, decode, encode, form_of
from fedtempo.errors import FedTempoError, first_line
from fedtempo.federation.federation import Federation
from fedtempo.federation.traffic import download_forms
from fedtempo.params import Params, select
from fedtempo.schedules import Now

PARTS: tuple[Part, ...] = ("train", "validation", "test")
TOKEN = 16
"""Bytes that name a run."""
LONGEST_REASON = 200
WRAPPING = 64
"""Bytes that a message adds to each of its parts, and more."""
_INTEGERS = ("round", "again", "clients", "total_samples", "plateaus", "absent", "newcomers", "parts")
_NUMBERS = ("cohort", "loss_ratio", "time")
_ABSENT: tuple[bool | Literal["own"], ...] = (False, True, "own")
"""How a client is outside the cohort, by the number that stands for it."""


class RemoteOrder(NamedTuple):
    """What all nodes get in one round: the model, where the run stands and, for an evaluation, what to score."""

    run: bytes
    received: Received
    now: Now
    newcomers: bool = False
    parts: tuple[Part, ...] = ()


def order_to_bytes(order: RemoteOrder) -> bytes:
    """An order on its way to the nodes."""
    now = order.now
    parts = sum(1 << PARTS.index(part) for part in order.parts)
    position = (now.round, now.again, now.clients, now.total_samples, now.plateaus, _ABSENT.index(now.absent))
    integers = (*position, int(order.newcomers), parts)
    return encode(
        "order",
        Contents(
            dict(zip(_INTEGERS, integers, strict=True)),
            dict(zip(_NUMBERS, (now.cohort, now.loss_ratio, now.time), strict=True)),
            {"run": _raw(order.run), **_joined(order.received)},
        ),
    )


def order_layout(federation: Federation, shared: Params, trains: bool = False) -> Layout:
    """What an order must look like, from the node's own model; one to train may have a compressed model in it."""
    extra = federation.first_extra(shared)
    run = ("run", torch.Size([TOKEN]), torch.uint8)
    if not trains or federation.algorithm.compress_down is None:
        received = Received(select(shared, federation.moving_names), extra)
        return Layout("order", _INTEGERS, _NUMBERS, (run, *form_of(_joined(received))))
    parts = ((f"shared/{name}", *form) for name, form in download_forms(federation, shared).items())
    return Layout("order", _INTEGERS, _NUMBERS, (run, *parts, *form_of(_joined(Received({}, extra)))))


def order_from_bytes(data: bytes, layout: Layout) -> RemoteOrder:
    """An order for this node's model, or `WireError`."""
    integers, numbers, tensors = decode(layout, data)
    received = Received(_part(tensors, "shared/"), _part(tensors, "extra/"))
    if not 0 <= integers["absent"] < len(_ABSENT):
        raise WireError(f"absent must be a number below {len(_ABSENT)}. Got {integers['absent']}.")
    now = Now(
        round=integers["round"],
        again=integers["again"],
        clients=integers["clients"],
        cohort=numbers["cohort"],
        total_samples=integers["total_samples"],
        loss_ratio=numbers["loss_ratio"],
        plateaus=integers["plateaus"],
        absent=_ABSENT[integers["absent"]],
        time=numbers["time"],
    )
    parts = tuple(part for bit, part in enumerate(PARTS) if integers["parts"] >> bit & 1)
    return RemoteOrder(tensors["run"].numpy().tobytes(), received, now, bool(integers["newcomers"]), parts)


class NodeTask(NamedTuple):
    """One client's turn: its number, and hashes of states (zeros for its first): where it starts, the selected one."""

    client: int
    kept: bytes
    selected: bytes = NOTHING_KEPT
    """Its state in the round that validation has selected. Zeros also stand for: no round is selected yet."""


def tasks_to_bytes(tasks: Sequence[NodeTask]) -> bytes:
    """Which of its clients a node is to work on."""
    clients = torch.tensor([task.client for task in tasks], dtype=torch.int64)
    kept, selected = (
        _raw(b"".join(hashes)).reshape(len(tasks), HASH)
        for hashes in ([task.kept for task in tasks], [task.selected for task in tasks])
    )
    return encode("tasks", Contents({}, {}, {"clients": clients, "kept": kept, "selected": selected}))


def tasks_from_bytes(data: bytes) -> list[NodeTask]:
    """The work list; its length follows from its size."""
    empty = _task_layout(0).size
    count = max(0, len(data) - empty) // (_task_layout(1).size - empty)
    _, _, tensors = decode(_task_layout(count), data)
    return [
        NodeTask(client, kept.numpy().tobytes(), selected.numpy().tobytes())
        for client, kept, selected in zip(
            tensors["clients"].tolist(), tensors["kept"], tensors["selected"], strict=True
        )
    ]


def _task_layout(count: int) -> Layout:
    clients = ("clients", torch.Size([count]), torch.int64)
    hashes = torch.Size([count, HASH])
    return Layout("tasks", (), (), (clients, ("kept", hashes, torch.uint8), ("selected", hashes, torch.uint8)))


def scores_to_bytes(client: int, round_number: int, values: Tensor) -> bytes:
    """One user's loss and scores, before and after fine-tuning, by part and metric."""
    return encode("scores", Contents({"client": client, "round": round_number}, {}, {"values": values}))


def scores_layout(parts: int, metrics: int) -> Layout:
    """What a user's scores look like."""
    shape = torch.Size([2, parts, metrics])
    return Layout("scores", ("client", "round"), (), (("values", shape, torch.float64),))


def scores_from_bytes(data: bytes, parts: int, metrics: int) -> tuple[int, int, Tensor]:
    """(client, round, values), or `WireError`. The first metric is the loss; any other may be undefined, NaN."""
    integers, _, tensors = decode(scores_layout(parts, metrics), data)
    values = tensors["values"]
    if bool(values.isinf().any()) or bool(values[..., 0].isnan().any()):
        raise WireError("scores must be finite, or NaN where undefined, and the loss finite. They are not.")
    return integers["client"], integers["round"], values


_SETTLED = Layout("settled", ("client",))


def settled_to_bytes(client: int) -> bytes:
    """A client whose selected and last states are kept for good."""
    return encode("settled", Contents({"client": client}, {}, {}))


def settled_from_bytes(data: bytes) -> int:
    """The client, or `WireError`."""
    return decode(_SETTLED, data).integers["client"]


_FAILURE = Layout("failure", (), (), (("reason", torch.Size([LONGEST_REASON]), torch.uint8),))


def answer_bytes(layout: Layout | None = None) -> int:
    """The most that a client's part of an answer takes in a message: what was asked for, or why there is none."""
    longest = max(_FAILURE.size, _SETTLED.size, 0 if layout is None else layout.size)
    return longest + WRAPPING


def failure_to_bytes(reason: str) -> bytes:
    """A client that could not do its part, and why."""
    text = reason.encode()[:LONGEST_REASON].ljust(LONGEST_REASON, b"\0")
    return encode("failure", Contents({}, {}, {"reason": _raw(text)}))


def failure_from_bytes(data: bytes) -> str | None:
    """The reason if this is a failure, else None; it is one printable line whatever was sent."""
    if not isinstance(data, bytes) or data[len(MARK) : len(MARK) + HASH] != _FAILURE.fingerprint:
        return None
    _, _, tensors = decode(_FAILURE, data)
    return one_short_line(tensors["reason"].numpy().tobytes().rstrip(b"\0").decode(errors="replace"))


def reason_of(error: BaseException) -> str:
    """An error as one line: our own say what is wrong by themselves, others need their type."""
    known = isinstance(error, FedTempoError)
    return first_line(error) if known else f"{type(error).__name__}: {first_line(error)}"


def one_short_line(text: str) -> str:
    """Received text as one short line without control characters."""
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    return " ".join(line.split())[:LONGEST_REASON]


def _joined(received: Received) -> Params:
    shared = {f"shared/{name}": tensor for name, tensor in received.shared.items()}
    return {**shared, **{f"extra/{name}": tensor for name, tensor in received.extra.items()}}


def _part(tensors: Mapping[str, Tensor], prefix: str) -> Params:
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def _raw(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
