"""What is asked of the combinations: gains over the baseline, whether they add up, and what they cost."""

from __future__ import annotations

from typing import Any

from fedtempo.papers.compositions.ingredients import ALL, CHOSEN, COSTS, HEADS, INGREDIENTS, NONE, PAIRS, USERS
from fedtempo.papers.framework.claims import Claim, all_of, at_least, higher, lower
from fedtempo.papers.framework.definitions import Column, Values, score_column
from fedtempo.papers.framework.figures import Figure, Sweep
from fedtempo.papers.framework.svg import Axes

END = f"{USERS}/mean"
SCORED: dict[str, Any] = {"end": "where each stops", "steps": "at equal steps", "bytes": "at equal bytes"}
"""Where scores are compared, in words."""
BUDGETS: dict[str, Any] = {"end": END, "steps": f"{USERS}/at_steps", "bytes": f"{USERS}/at_bytes"}
POINT = 0.01
AS_MUCH = -POINT
"""A point less than the sum of the gains still counts as adding up."""


def composition_gains(values: Values) -> Values:
    """Over the baseline, and of that what is more than the sum of the ingredients' gains alone."""
    found: dict[str, dict[str, float]] = {label: {} for label in CHOSEN}
    for budget, column in BUDGETS.items():
        gain = {label: values[label][column] - values[NONE][column] for label in CHOSEN}
        for label, chosen in CHOSEN.items():
            found[label][f"gain_{budget}"] = gain[label]
            if len(chosen) > 1:
                found[label][f"extra_{budget}"] = gain[label] - sum(gain[one] for one in chosen)
    return found


def _needed(label: str) -> tuple[str, ...]:
    """What the gain beyond the sum of gains is made of."""
    return (NONE, *CHOSEN[label], label)


COLUMNS = {
    END: score_column("test accuracy"),
    "gain_end": score_column("gain over the baseline", "+.3f", of_one_run=False),
    "extra_end": score_column("beyond the sum of gains", "+.3f", of_one_run=False, made_of=_needed),
    BUDGETS["steps"]: Column("accuracy at equal steps", margin=POINT),
    "gain_steps": Column("gain over the baseline", "+.3f"),
    BUDGETS["bytes"]: Column("accuracy at equal bytes", margin=POINT),
    "gain_bytes": Column("gain over the baseline", "+.3f"),
    "new_after/mean": score_column("new users"),
    "steps": Column("steps", ".0f"),
    "bytes": Column("bytes", ".3g"),
    "steps_to_target": Column("steps to the target", ".0f"),
    "bytes_to_target": Column("bytes to the target", ".3g"),
    "clipped": Column("steps clipped, %", ".0f"),
}
CLAIMS = (
    *(
        Claim(f"{one} alone improves on the baseline {SCORED[place]}.", higher(one, NONE, column))
        for one in INGREDIENTS
        for place, column in BUDGETS.items()
    ),
    *(
        Claim(
            f"{one} alone reaches the target with fewer {cost} than the baseline.",
            lower(one, NONE, f"{cost}_to_target"),
        )
        for one in INGREDIENTS
        for cost in COSTS
        # Without its head every upload is smaller; the others send as many bytes a round, so steps tell the same.
        if cost == "steps" or one == HEADS
    ),
    *(Claim(f"{pair}: the gains add up, to a point.", at_least(pair, "extra_end", AS_MUCH)) for pair in PAIRS),
    *(
        Claim(
            f"All five together are better than the baseline and than each alone, {SCORED[place]}.",
            all_of(*(higher(ALL, other, column) for other in (NONE, *INGREDIENTS))),
        )
        for place, column in BUDGETS.items()
    ),
    Claim("All five: the gains add up, to a point.", at_least(ALL, "extra_end", AS_MUCH)),
)


def _label(one: str, other: str) -> str:
    return next((pair for pair, both in PAIRS.items() if set(both) == {one, other}), one)


def composition_figures(title: str) -> tuple[Figure, ...]:
    """The gain of each ingredient alone, and with each other one."""
    lines = {
        "alone": {float(place): one for place, one in enumerate(INGREDIENTS)},
        **{
            f"with {one}": {float(place): _label(one, other) for place, other in enumerate(INGREDIENTS) if other != one}
            for one in INGREDIENTS
        },
    }
    return tuple(
        Sweep(
            budget,
            f"gain_{budget}",
            Axes(
                f"{title}, {SCORED[budget]}", "ingredient", "gain over the baseline", reference=0.0, ticks=INGREDIENTS
            ),
            lines,
        )
        for budget in SCORED
    )
