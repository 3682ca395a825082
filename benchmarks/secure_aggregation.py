"""Flower's SecAgg+ with FedTempo's uploads: what it costs, how exact it is, what it survives, what it hides.

    python -m benchmarks.secure_aggregation

runs Flower's own workflow and Flower's own client code on nodes in this process, and prints the figures of
docs/secure-aggregation.md. Nothing here is used by FedTempo itself.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.client.mod.secure_aggregation.secaggplus_mod import secaggplus_mod
from flwr.common import Code, FitIns, FitRes, Parameters, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, RECORD_KEY_STATE, Key, Stage
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from flwr.server import LegacyContext
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD
from flwr.server.workflow.secure_aggregation import secaggplus_workflow
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.task_identity import TaskIdentity

from fedtempo.server.exact_sums import Exact, empty_sum

compat = secaggplus_workflow.compat
STAGES = ("setup", "share_keys", "collect_masked_vectors", "unmask")
BITS, LIMBS_HIGH, LIMBS_LOW = 20, 3, 2
"""Both halves of an exact sum in digits of 20 bits: up to 4,096 of them add up below 2^32, Flower's largest modulus."""


class Node(NamedTuple):
    """What a node would send."""

    vectors: list[np.ndarray]
    weight: int


class Grid:
    """Nodes in this process behind the one method of Flower's grid that the workflow calls. It counts bytes."""

    def __init__(self, nodes: dict[int, Node], drops: dict[int, str]) -> None:
        self.nodes, self.drops = nodes, drops
        self.contexts = {n: Context(1, n, {}, RecordDict(), {}, None) for n in nodes}
        self.down, self.up = dict.fromkeys(STAGES, 0), dict.fromkeys(STAGES, 0)
        self.masked: dict[int, list[np.ndarray]] = {}
        self.in_the_clear: dict[int, list[Any]] = {}
        self.errors: list[str] = []
        self.exchanges = 0

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        self.exchanges += 1
        return [reply for message in messages if (reply := self._answer(copy.deepcopy(message))) is not None]

    def _answer(self, message: Message) -> Message | None:
        number, stage = message.metadata.dst_node_id, STAGES[self.exchanges - 1]
        gone = number in self.drops and STAGES.index(self.drops[number]) <= self.exchanges - 1
        self.down[stage] += size_of(message)
        if gone:
            return None
        try:
            reply = secaggplus_mod(message, self.contexts[number], self._fit)
        except Exception as error:  # as Flower does where an app raises
            self.errors.append(f"{type(error).__name__}: {error}")
            return Message(Error(2, str(error)), reply_to=message)
        self.up[stage] += size_of(reply)
        if stage == "collect_masked_vectors":
            packed = reply.content.config_records[RECORD_KEY_CONFIGS][Key.MASKED_PARAMETERS]
            self.masked[number] = [secaggplus_workflow.bytes_to_ndarray(each) for each in packed]
            plain = [value for record in reply.content.metric_records.values() for value in record.values()]
            self.in_the_clear[number] = plain
        return reply

    def _fit(self, message: Message, context: Context) -> Message:
        node = self.nodes[context.node_id]
        result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters(node.vectors), node.weight, {})
        return Message(compat.fitres_to_recorddict(result, True), reply_to=message)


class Strategy:
    """Asks every node and keeps what comes out."""

    def __init__(self, nodes: Iterable[int]) -> None:
        self.nodes, self.result = list(nodes), None

    def configure_fit(self, server_round: int, parameters: Parameters, client_manager: object) -> list[Any]:
        return [(SimpleNamespace(node_id=node), FitIns(parameters, {})) for node in self.nodes]

    def aggregate_fit(self, server_round: int, results: list[Any], failures: object) -> tuple[None, dict[str, Any]]:
        self.result = parameters_to_ndarrays(results[0][1].parameters) if results else None
        return None, {}


def size_of(message: Message) -> int:
    """Bytes of all objects that Flower would push for this message."""
    return sum(len(each.deflate()) for each in get_all_nested_objects(message).values())


def run(nodes: dict[int, Node], drops: dict[int, str] | None = None, **settings: Any) -> tuple[Any, Grid, float]:
    """One round of Flower's workflow: the mean it finds (or None), the grid with its counts, seconds."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    grid, strategy = Grid(nodes, drops or {}), Strategy(nodes)
    plain = Context(1, 1, {}, RecordDict(), {}, None)
    context = LegacyContext(plain, strategy=strategy, client_manager=SimpleNamespace(num_available=lambda: len(nodes)))
    some = ndarrays_to_parameters([np.zeros_like(v, dtype=np.float32) for v in next(iter(nodes.values())).vectors])
    context.state[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(some, True)
    context.state[MAIN_CONFIGS_RECORD] = ConfigRecord({"current_round": 1})
    began = time.perf_counter()
    SecAggPlusWorkflow(num_shares=1.0, reconstruction_threshold=0.5, **settings)(grid, context)
    return strategy.result, grid, time.perf_counter() - began


# ---------------------------------------------------------------------- exact sums through whole numbers


def digits(values: np.ndarray, count: int) -> list[np.ndarray]:
    """Whole numbers as digits in [-2^19, 2^19), least first; they are floats that hold integers."""
    rest, found = values.astype(np.int64), []
    for _ in range(count):
        digit = ((rest + (1 << BITS - 1)) & ((1 << BITS) - 1)) - (1 << BITS - 1)
        found.append(digit.astype(np.float64))
        rest = (rest - digit) >> BITS
    assert not rest.any(), "too large for these digits"
    return found


def whole(summed: list[np.ndarray]) -> np.ndarray:
    return sum(each.astype(object) << (BITS * place) for place, each in enumerate(summed))


def exact_of(upload: np.ndarray, weight: float) -> Exact:
    found = empty_sum(torch.from_numpy(upload))
    found.add(torch.from_numpy(upload), weight)
    return found


def encoded(each: Exact) -> list[np.ndarray]:
    high, low = each.high.numpy() * 2.0**24, each.low.numpy() * 2.0**58
    return [*digits(high, LIMBS_HIGH), *digits(low, LIMBS_LOW)]


def decoded(mean: list[np.ndarray], nodes: int) -> tuple[np.ndarray, np.ndarray]:
    sums = [np.rint(each * nodes).astype(np.int64) for each in mean]
    high, low = whole(sums[:LIMBS_HIGH]), whole(sums[LIMBS_HIGH:])
    return high.astype(np.float64) * 2.0**-24, low.astype(np.float64) * 2.0**-58


# ---------------------------------------------------------------------- the masks


def outputs(seeds: np.ndarray, count: int) -> np.ndarray:
    """The first numbers of Mersenne Twisters with these seeds, one column per seed."""
    state = seeds.astype(np.uint32)
    kept = {0: state}
    for place in range(1, 397 + count):
        state = (state ^ (state >> np.uint32(30))) * np.uint32(1812433253) + np.uint32(place)
        if place <= count or place >= 397:
            kept[place] = state
    found = []
    for place in range(count):
        mixed = (kept[place] & np.uint32(0x80000000)) | (kept[place + 1] & np.uint32(0x7FFFFFFF))
        value = kept[place + 397] ^ (mixed >> np.uint32(1)) ^ ((mixed & np.uint32(1)) * np.uint32(0x9908B0DF))
        value ^= value >> np.uint32(11)
        value ^= (value << np.uint32(7)) & np.uint32(0x9D2C5680)
        value ^= (value << np.uint32(15)) & np.uint32(0xEFC60000)
        found.append(value ^ (value >> np.uint32(18)))
    return np.stack(found)


def search(masked: np.ndarray, sign: int, seeds: Iterable[np.ndarray], below: int) -> tuple[list[int], int, float]:
    """Seeds whose mask, taken off, leaves small numbers as honest uploads are; how many were tried, in what time."""
    found, tried, began = [], 0, time.perf_counter()
    target = masked[:5, None].astype(np.int64)
    for block in seeds:
        left = (target - sign * outputs(block, 5).astype(np.int64)) % (1 << 32)
        found += block[(left <= below).all(axis=0)].tolist()
        tried += len(block)
    return found, tried, time.perf_counter() - began


def folded(key: bytes) -> int:
    """Flower's seed of 32 bits from a key of 32 bytes."""
    seed = 0
    for place in range(0, len(key), 4):
        seed ^= int.from_bytes(key[place : place + 4], "little")
    return seed


# ---------------------------------------------------------------------- figures


def problem(nodes: int, numbers: int) -> dict[int, Node]:
    rng = np.random.default_rng(0)
    return {
        100 + 7 * n: Node([rng.normal(0, 0.02, numbers).astype(np.float32)], int(rng.integers(20, 200)))
        for n in range(nodes)
    }


def exactness(count: int = 10, numbers: int = 100_000) -> None:
    nodes = problem(count, numbers)
    total = empty_sum(torch.zeros(numbers))
    for node in nodes.values():
        total.add(torch.from_numpy(node.vectors[0]), node.weight)
    ours = total.value.numpy() / sum(node.weight for node in nodes.values())
    mean, grid, seconds = run(nodes)
    error = np.abs(mean[0] - ours)
    plain = 4 * numbers
    up = sum(grid.up.values()) / count
    print(f"as it comes, {count} nodes, {numbers} numbers: {grid.exchanges} exchanges, {seconds:.1f} s")
    print(f"  up {up:,.0f} bytes a node ({up / plain:.2f} x float32), by stage {grid.up}")
    print(f"  error of the mean: max {error.max():.2e}, rms {np.sqrt((error**2).mean()):.2e}; ", end="")
    print(f"the mean itself has rms {np.sqrt((ours**2).mean()):.2e}")
    again, _, _ = run(nodes)
    print(f"  a second time: {int((again[0] != mean[0]).sum()):,} of {numbers:,} numbers differ")
    sent = {n: Node(encoded(exact_of(node.vectors[0], node.weight)), 1000) for n, node in nodes.items()}
    limits = {"clipping_range": 2.0 ** (BITS - 1), "quantization_range": 1 << BITS, "max_weight": 1000.0}
    mean, grid, seconds = run(sent, **limits)
    high, low = decoded(mean, count)
    equal = np.array_equal(high, total.high.numpy()) and np.array_equal(low, total.low.numpy())
    up = sum(grid.up.values()) / count
    print(f"as digits: sums equal to ours bit for bit: {equal}; ", end="")
    print(f"up {up:,.0f} bytes a node ({up / plain:.2f} x), {seconds:.1f} s")


def dropouts(count: int = 10, numbers: int = 1000) -> None:
    nodes = problem(count, numbers)
    names = list(nodes)
    for stage in STAGES:
        for dropped in (1, 4, 5, 6):
            drops = dict.fromkeys(names[:dropped], stage)
            mean, grid, _ = run(nodes, drops)
            counted = nodes if stage == "unmask" else {n: nodes[n] for n in names[dropped:]}
            weights = sum(node.weight for node in counted.values())
            wanted = sum(node.vectors[0].astype(float) * node.weight for node in counted.values()) / weights
            why = f" ({len(grid.errors)} nodes raised {grid.errors[0]})" if grid.errors else ""
            what = f"no result{why}" if mean is None else f"largest error {np.abs(mean[0] - wanted).max():.1e}"
            print(f"  {dropped} of {count} gone from {stage} on: {what}")


def secrecy(window: int = 1 << 24) -> None:
    """What a server that only reads learns about one of two nodes that are left of three."""
    nodes = problem(3, 1000)
    a, b, c = nodes
    _, grid, _ = run(nodes, {c: "collect_masked_vectors"})
    print(f"  sent in the clear beside the mask: {grid.in_the_clear[a]} (the node's weight is {nodes[a].weight})")
    lengths = [each.shape for each in grid.masked[a]]
    masked = np.concatenate([each.ravel() for each in grid.masked[a]])
    # The server has these: the private seed of a survivor and the masking key of the one that dropped are
    # reconstructed in the last stage, as the protocol wants it.
    own = flat(pseudo_rand_gen(bytes(kept(grid, a)["rd_seed"]), 1 << 32, lengths))
    dropped = flat(pseudo_rand_gen(shared_key(grid, a, c), 1 << 32, lengths))
    known = (masked - own - sign(a, c) * dropped) % (1 << 32)
    # What hides the upload now is one mask between a and b, from a seed of 32 bits.
    right = folded(shared_key(grid, a, b))
    start = max(0, right - window // 2)
    blocks = (np.arange(s, min(s + (1 << 16), 1 << 32), dtype=np.uint32) for s in range(start, start + window, 1 << 16))
    found, tried, seconds = search(known, sign(a, b), blocks, 1 << 22)
    rate = tried / seconds
    print(f"  {tried:,} of 2^32 seeds tried in {seconds:.0f} s on one core in numpy: {rate:,.0f} a second,")
    print(f"  all of them in {2**32 / rate / 3600:.1f} hours; found {found}, right is {right}")
    mask = flat(pseudo_rand_gen(int(found[0]).to_bytes(4, "little"), 1 << 32, lengths))
    plain = (known - sign(a, b) * mask) % (1 << 32)
    ratio = plain[0] / (1 << 22)
    values = (plain[1:] * (16.0 / (1 << 22)) - 8.0) / ratio
    print(
        f"  the node's upload read back: largest difference {np.abs(values - nodes[a].vectors[0]).max():.1e}; ", end=""
    )
    print(f"its weight {ratio * 1000:.0f} (is {nodes[a].weight})")


def flat(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([each.ravel() for each in arrays])


def sign(own: int, other: int) -> int:
    return 1 if own > other else -1


def kept(grid: Grid, node: int) -> ConfigRecord:
    """What a node's part of the protocol has stored."""
    return grid.contexts[node].state.config_records[RECORD_KEY_STATE]


def shared_key(grid: Grid, first: int, second: int) -> bytes:
    return secaggplus_workflow.generate_shared_key(
        secaggplus_workflow.bytes_to_private_key(bytes(kept(grid, first)["sk1"])),
        secaggplus_workflow.bytes_to_public_key(bytes(kept(grid, second)["pk1"])),
    )


def both_lists() -> bool:
    """Whether a node hands out both secrets of another one that the server calls active and dropped at once."""
    nodes = problem(3, 10)
    victim, asked, _ = nodes
    grid = run(nodes, dict.fromkeys(nodes, "unmask"))[1]
    config = {Key.STAGE: Stage.UNMASK, Key.ACTIVE_NODE_ID_LIST: list(nodes), Key.DEAD_NODE_ID_LIST: [victim]}
    content = RecordDict({RECORD_KEY_CONFIGS: ConfigRecord(config)})
    request = Message(content, dst_node_id=asked, message_type="train")
    reply = secaggplus_mod(request, grid.contexts[asked], lambda message, context: message)
    given = reply.content.config_records[RECORD_KEY_CONFIGS][Key.NODE_ID_LIST]
    return list(given).count(victim) == 2


if __name__ == "__main__":
    exactness()
    print("dropouts, 10 nodes, threshold half of the shares:")
    dropouts()
    print("secrecy:")
    secrecy()
    print(f"  a node gives away both secrets of another that the server calls active and dropped: {both_lists()}")
