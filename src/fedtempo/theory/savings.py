"""How many local steps a schedule of K costs, and what it saves."""

from __future__ import annotations

from fedtempo.client.phase import Length
from fedtempo.errors import is_count, require
from fedtempo.schedules import Now, Rate, as_schedule


def local_steps(steps: Rate, rounds: int) -> list[int]:
    """K_t for t = 0..rounds-1: the schedule rounded up, guarded so that 10.000000001 stays 10, and at least one step.

    Decaying-K paper, section 3: `K_t = ceil(K_0 d^t)`, and the first round takes K_0 steps (t = 0). Schedules
    that look at the training loss are evaluated as if the loss never changed.

    >>> from fedtempo.schedules import decaying_k
    >>> local_steps(decaying_k(10, 0.5), rounds=5)
    [10, 5, 3, 2, 1]
    """
    require(is_count(rounds), "rounds", "an int >= 1", rounds)
    schedule = as_schedule(steps)
    # Training's own rule: a value above 0 is rounded up, guarded against rounding errors, and is at least one step.
    rule = Length(schedule)
    return [int(rule.units(Now(round=t))) for t in range(rounds)]


def total_local_steps(steps: Rate, rounds: int) -> int:
    """The local steps one always-present client takes over all rounds: `sum_t K_t`.

    The decaying-K paper's toy needs 4,586 of 30,000 (section 3 says "84 % less").

    >>> from fedtempo.schedules import decaying_k
    >>> total_local_steps(decaying_k(10, 0.995), rounds=3000)
    4586
    """
    return sum(local_steps(steps, rounds))


def step_fraction(steps: Rate, rounds: int) -> float:
    """`sum_t K_t / (T K_0)`: "Fraction SGD Steps Used" in Table 1 of the decaying-K paper.

    >>> from fedtempo.schedules import decaying_k
    >>> round(step_fraction(decaying_k(33, 0.999), rounds=4000), 2)  # FEMNIST, K = 33
    0.26
    """
    counts = local_steps(steps, rounds)
    return sum(counts) / (rounds * counts[0])


def steps_saved(steps: Rate, rounds: int) -> float:
    """The fraction of local steps saved against keeping the first round's K: `1 - step_fraction`.

    >>> from fedtempo.schedules import decaying_k
    >>> round(steps_saved(decaying_k(10, 0.995), rounds=3000), 3)
    0.847
    """
    return 1 - step_fraction(steps, rounds)
