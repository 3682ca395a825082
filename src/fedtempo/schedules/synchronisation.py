"""The quadratic synchronisation rule: local steps that grow as the learning rate falls."""

from __future__ import annotations

import math
from dataclasses import replace

from fedtempo.errors import ConfigError, is_count, is_number, require, takes_numbers
from fedtempo.schedules.position import Now
from fedtempo.schedules.schedule import Rate, Schedule, checked_rate, registered
from fedtempo.schedules.totals import follows_rounds, total_before


@registered(from_round=True)
@takes_numbers
def qsr(
    lr: Rate,
    alpha: float,
    k_base: int = 1,
    power: float = 2.0,
    most: int | None = None,
    budget: int | None = None,
    warmup_steps: int = 0,
    warmup_k: int | None = None,
    warmup_rounds: int = 0,
) -> Schedule:
    """K_t = max(k_base, floor((alpha / lr_t)^power)), lr_t the rate of the round's first step (Gu et al., 2024).

    `most` bounds K_t. `budget` is the number of steps of the whole run: K_t = max(1, min(K_t, budget - steps so far)).
    A warm-up has small rates and would have many steps: for `warmup_rounds` rounds K_t is that of the first round
    after them, as in the paper. The authors' code has K_t = `warmup_k` as long as fewer than `warmup_steps` steps were
    taken. A rate that may fall to 0 needs a bound. The rule is an alternative to `decaying_k`, not a factor for it.

    >>> from fedtempo.schedules import piecewise
    >>> rule = qsr(piecewise(0.2, {1: 0.5}), alpha=0.4, k_base=2, most=1000)
    >>> [rule.at(Now(round=n)) for n in (0, 1)]
    [4.0, 16.0]
    """
    rate = checked_rate(lr, "lr")
    require(is_number(alpha) and alpha >= 0, "alpha", "a number >= 0", alpha)
    require(is_count(k_base), "k_base", "an int >= 1", k_base)
    require(is_number(power) and power > 0, "power", "a number > 0", power)
    for name, value in (("most", most), ("budget", budget), ("warmup_k", warmup_k)):
        require(value is None or is_count(value), name, "an int >= 1 or None", value)
    require(most is None or k_base <= most, "k_base", f"at most {most} (most)", k_base)
    require(is_count(warmup_steps, 0), "warmup_steps", "an int >= 0", warmup_steps)
    require(
        bool(warmup_steps) == (warmup_k is not None), "warmup_k", "given with warmup_steps, and only then", warmup_k
    )
    require(is_count(warmup_rounds, 0), "warmup_rounds", "an int >= 0", warmup_rounds)
    one = not (warmup_rounds and warmup_steps)
    require(one, "warmup_rounds", "left out where warmup_steps are given", warmup_rounds)
    bounded = most is not None or budget is not None or rate.name == "constant"
    require(bounded, "most or budget", "given where lr is a schedule, because steps grow as it falls", None)

    def wanted(now: Now) -> float:
        value = rate.at(replace(now, round=max(now.round, warmup_rounds)))
        limit = float(most) if most is not None else math.inf
        # 0.3 / 0.1 is a little below 3; without the factor its floor would be 2.
        ratio = _power(alpha / value, power) * (1 + 1e-12) if value > 0 else math.inf
        return max(float(k_base), float(math.floor(ratio)) if ratio < limit else limit)

    def steps(now: Now, taken: int) -> int:
        value = float(warmup_k) if warmup_k is not None and taken < warmup_steps else wanted(now)
        value = value if budget is None else max(1.0, min(value, budget - taken))
        if math.isinf(value):
            raise ConfigError(
                f"most or budget must be given: lr is {rate.at(now):g} in round {now.round}. Got {rate!r}."
            )
        return int(value)

    given = {"lr": rate, "alpha": alpha, "k_base": k_base, "power": power, "most": most, "budget": budget}
    given |= {"warmup_steps": warmup_steps, "warmup_k": warmup_k, "warmup_rounds": warmup_rounds or None}
    settings = {key: value for key, value in given.items() if value is not None}
    counts, alike, key = budget is not None or warmup_steps > 0, follows_rounds(rate), f"qsr {settings}"

    def rule(now: Now) -> float:
        first = replace(now, step=0, steps=1, epoch=0, ends_epoch=False, earlier=0)
        if not counts:
            return steps(first, 0)
        if alike:
            return steps(first, total_before(now.round, key, lambda t, taken: steps(Now(round=t), taken)))
        taken = 0
        for earlier in range(now.round):
            taken += steps(replace(first, round=earlier), taken)
        return steps(first, taken)

    return Schedule("qsr", settings, rule)


def _power(base: float, exponent: float) -> float:
    """The power, or infinity where it is above the largest float, for which Python raises an error."""
    try:
        return float(base**exponent)
    except OverflowError:
        return math.inf
