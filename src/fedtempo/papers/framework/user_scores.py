"""Every user's test score, kept with a run: claims about users can be resampled over them later."""

from __future__ import annotations

from fedtempo.training.result import Result

UserScore = tuple[int, int, float]
"""A user's id, its number of scored rows, and its score."""


def user_scores(result: Result) -> dict[str, tuple[UserScore, ...]]:
    """Each group's users with their score of the main metric; those without a defined score are left out."""
    scores = result.scores
    if scores is None:
        return {}
    found = {}
    for name, group in scores.groups().items():
        known = group.scored(scores.metric)
        columns = (group.clients[known], group.samples[known], group.values[scores.metric][known])
        found[name] = tuple((int(who), int(rows), float(score)) for who, rows, score in zip(*columns, strict=True))
    return found
