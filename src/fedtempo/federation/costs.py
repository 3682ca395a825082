"""Costs: bytes down and up, local steps, samples, and floating-point operations of forward and backward passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from fedtempo.client.gradients import by_autograd
from fedtempo.client.objectives import Received
from fedtempo.client.phase import Carry
from fedtempo.client.program import Stage
from fedtempo.federation.federation import Federation
from fedtempo.federation.traffic import bytes_of, download_forms, upload_forms
from fedtempo.params import Params, partition, size_in_bytes
from fedtempo.schedules import Now, constant
from fedtempo.tasks import Batch


@dataclass(frozen=True)
class Costs:
    """What a round, or a run, has cost. Costs add up."""

    bytes_down: int = 0
    """Bytes of tensors sent to clients."""
    bytes_up: int = 0
    """Bytes of tensors that clients send, refused uploads included."""
    steps: int = 0
    """Local gradient steps."""
    steps_saved: int = 0
    """Local steps that the first round's schedule would have taken and this one did not (decaying K)."""
    samples: int = 0
    """Rows that went through the model, with repetition."""
    flops: int = 0
    """Floating-point operations of forward and backward passes."""

    def __add__(self, other: Costs) -> Costs:
        return Costs(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def times(self, count: int) -> Costs:
        """The costs of `count` equal clients."""
        return Costs(*(getattr(self, f.name) * count for f in fields(self)))

    @property
    def bytes(self) -> int:
        """Both directions together."""
        return self.bytes_down + self.bytes_up


@dataclass(frozen=True)
class StageFlops:
    """Operations per sample of one stage: of a plain step, of the pass over all rows, and of a step after that pass."""

    step: float
    enter: float
    step_after: float


class Ledger:
    """Counts what rounds cost. Operations are measured once on the real model, then multiplied by steps and rows."""

    def __init__(
        self,
        federation: Federation,
        shared: Params,
        extra: Params,
        asked: Iterable[int] = (),
        stages: Sequence[StageFlops] | None = None,
    ) -> None:
        self._federation = federation
        self._stages = measured_stages(federation, shared, extra) if stages is None else stages
        _, still = partition(shared, federation.moving_names)
        # What no round changes goes down once, with a client's first round; the rest goes down every time.
        shares = not federation.algorithm.uploads.nothing
        self._down = bytes_of(download_forms(federation, shared)) + size_in_bytes(extra) if shares else 0
        self._once = size_in_bytes(still) if shares else 0
        self._has_it = np.zeros(len(federation.problem.data), dtype=bool)
        self._has_it[np.fromiter(asked, dtype=np.int64)] = True
        self._up = sum(bytes_of(forms) for forms in upload_forms(federation).values())
        # Clients of one size cost the same in one round, so a cohort of thousands needs a few evaluations.
        self._price = lru_cache(maxsize=4096)(self._client)

    def clients(self, clients: Sequence[int] | np.ndarray, now: Now, personal: Sequence[Params] = ()) -> Costs:
        """What a round of these clients costs. From then on they hold the tensors that never change.

        `personal` is what they keep, where a schedule looks at it.
        """
        chosen = np.asarray(clients, dtype=np.int64)
        prices, members = self._prices(chosen, now, personal)
        counts = np.bincount(members, minlength=len(prices)).tolist()
        first_time = int((~self._has_it[chosen]).sum())
        self._has_it[chosen] = True
        total = Costs(bytes_down=first_time * self._once)
        return sum((price.times(count) for price, count in zip(prices, counts, strict=True)), total)

    def work(self, clients: np.ndarray, now: Now, personal: Sequence[Params] = ()) -> tuple[np.ndarray, np.ndarray]:
        """Steps and operations of each of these clients in a round."""
        prices, members = self._prices(clients, now, personal)
        steps, flops = ([getattr(price, name) for price in prices] for name in ("steps", "flops"))
        return np.array(steps, dtype=np.float64)[members], np.array(flops, dtype=np.float64)[members]

    def _prices(self, clients: np.ndarray, now: Now, personal: Sequence[Params]) -> tuple[list[Costs], np.ndarray]:
        """What a round costs, without what goes down only once, and which of these prices each client has."""
        problem, sizes = self._federation.problem, self._federation.problem.sizes[clients]
        if problem.sees_clients or now.deadline:
            places = problem.places(now, clients, personal)
            prices = [self._price(size, place) for size, place in zip(sizes.tolist(), places, strict=True)]
            return prices, np.arange(len(clients))
        different, members = np.unique(sizes, return_inverse=True)
        return [self._price(size, now) for size in different.tolist()], members

    def first_bytes(self, clients: np.ndarray) -> np.ndarray:
        """Bytes that go down to each client once, with its first round; 0 for those that have been asked before."""
        return np.where(self._has_it[clients], 0, self._once)

    @property
    def row_flops(self) -> float:
        """Operations that one row takes in a step of the most expensive stage."""
        return max(max(stage.step, stage.step_after) for stage in self._stages)

    def traffic(self, clients: float) -> Costs:
        """Bytes down and up of so many clients, without anything that depends on their rows (for private runs)."""
        return Costs(bytes_down=round(self._down * clients), bytes_up=round(self._up * clients))

    def _client(self, samples: int, now: Now) -> Costs:
        steps, seen, flops, at_first = 0, 0, 0.0, 0
        # `steps_saved` compares with the steps that the same client would have taken in round 0.
        now = replace(now, samples=samples)
        first = replace(now, round=0, loss_ratio=1.0, plateaus=0, time=0.0, last_loss=0.0)
        batching, most = self._federation.problem.batching, now.most_steps if now.deadline else None
        for stage, price in zip(self._federation.program.stages, self._stages, strict=True):
            mine, (_, count) = stage.phase.batching(batching), stage.phase.rows(samples)
            # A phase with `until` (FedALA) ends when the client decides. One unit is charged: nobody knows it before.
            length = replace(stage.phase.length, count=constant(1)) if stage.phase.until else stage.phase.length
            planned = length.steps(now, count, mine)
            taken = planned if most is None else min(planned, max(0, most - steps))
            rows = sum(mine.length(count, step // stage.phase.repeat) for step in range(taken))
            if stage.needs_all_rows(taken, count, mine):
                flops += price.enter * count + price.step_after * rows
            else:
                flops += price.step * rows
            steps, seen = steps + taken, seen + rows
            at_first += length.steps(first, count, mine)
        return Costs(self._down, self._up, steps, at_first - steps, seen, round(flops))


def measured_stages(federation: Federation, shared: Params, extra: Params) -> list[StageFlops]:
    """The operations of every stage, counted on two rows of the first client that has them."""
    client = int(federation.problem.data.clients[0])
    received = Received(shared, extra)
    carry = federation.program.init(received, federation.first_personal(client, shared))
    rows = two_rows(federation, client)
    (now,) = federation.problem.places(Now(samples=2, total_samples=2), np.array([client]))
    return [_measure_stage(stage, received, carry, rows, now) for stage in federation.program.stages]


def two_rows(federation: Federation, client: int) -> Batch:
    """A batch to try steps on, with a key for masks where the model drops out."""
    # Two rows, because BatchNorm cannot train on one. The first row twice, because a client may have only one.
    rows = {n: t[:1].expand(2, *t.shape[1:]) for n, t in federation.problem.client_rows(client).items()}
    if federation.problem.network.dropout:
        rows["_key"] = torch.zeros((), dtype=torch.int64, device=federation.problem.device)
    return rows


def _measure_stage(stage: Stage, received: Received, carry: Carry, rows: Batch, now: Now) -> StageFlops:
    # Delta-SGD takes its second gradient from the second step on, so that is the step to measure.
    now = replace(now, step=1, steps=2) if stage.probes_other_points else now
    if stage.phase.enter is None and not stage.reuses_features:
        plain = _count(lambda: stage.step(by_autograd, received, carry, rows, now))
        return StageFlops(plain, 0.0, plain)
    columns = {n: v for n, v in rows.items() if n != "_key"}
    after, prepared = stage.enter(received, carry, columns)
    if "_key" in rows:
        prepared = {**prepared, "_key": rows["_key"]}
    return StageFlops(
        0.0 if stage.phase.enter is not None else _count(lambda: stage.step(by_autograd, received, carry, rows, now)),
        _count(lambda: stage.enter(received, carry, columns)),
        _count(lambda: stage.step(by_autograd, received, after, prepared, now)),
    )


def _count(work: Callable[[], object]) -> float:
    """Operations per row; torch's own formulas."""
    with OperationCounter() as counter:
        work()
    return float(counter.operations) / 2


class OperationCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What `torch.utils.flop_counter` counts, without loading torch's compiler for it: that takes over a second."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: float = 0.0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count an operation that has a formula; look into one that has none."""
        kwargs = kwargs or {}
        formula = flop_registry.get(func.overloadpacket)
        if formula is None:
            with self:
                result = func.decompose(*args, **kwargs)
            return func(*args, **kwargs) if result is NotImplemented else result
        result = func(*args, **kwargs)
        self.operations += formula(*args, **kwargs, out_val=result)
        return result
