"""Notes about a finished run, a line each: how it ended, which model it gives, what looks wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fedtempo.evaluation.protocol import Scores
from fedtempo.evaluation.serving import fine_tuning_in_words, harm
from fedtempo.training.clock import AWAY, LATE, LEFT
from fedtempo.training.experiment import Experiment
from fedtempo.training.round_report import RoundReport

LOST = {LATE: "late", LEFT: "left", AWAY: "away"}


def remarks(
    experiment: Experiment, history: Sequence[RoundReport], last: int, chosen: int | None, scores: Scores | None
) -> Iterator[str]:
    """How the run ended, which model it hands out, how users are fine-tuned, who was lost, and what looks wrong."""
    done, protocol = last + 1, experiment.evaluation
    if history and history[-1].stops:
        patience = protocol.patience if protocol else None
        why = f"no better validation score in {patience} evaluations"
        yield f"stopped early in round {done} of {experiment.rounds}: {why}"
    if chosen is not None:
        yield f"model: round {chosen + 1} of {done}, selected by validation{_why(history, chosen)}"
    else:
        yield f"model: the last round, {done}"
        yield from _not_selected([report.validation for report in history if report.validation is not None])
    if protocol is not None:
        yield f"fine-tuning: {fine_tuning_in_words(experiment.federation, protocol)}"
    if history and history[-1].total_time:
        energy = f", {history[-1].total_energy:.6g} J" if history[-1].total_energy else ""
        yield f"clock: {history[-1].total_time:.6g} s{energy}{_lost(history)}"
    if scores is not None and scores.part == "train":
        yield "warning: no user has test rows: the scores are of rows that were trained on"
    elif scores is not None and not experiment.federation.private:
        yield from _not_scored(scores)
    if scores is not None and harm(scores) is not None:
        before, after = harm(scores) or (0.0, 0.0)
        yield (
            f"warning: fine-tuning made existing users worse ({scores.metric} {before:.3g} to {after:.3g}). "
            "Give it a rate of its own: Evaluation(lr=...)"
        )


def _not_selected(validations: Sequence[Scores]) -> Iterator[str]:
    """Why validation selected no round, where there was one."""
    if not validations:
        return
    metric = validations[0].metric
    if any(scores.guiding.scored(metric).any() for scores in validations):
        yield "warning: no round has a finite validation score, so none was selected: try a smaller rate"
    else:
        yield (
            f"warning: {metric} is undefined for every user's validation rows, so no round was selected and no test "
            "scores were kept: give another metric= or more validation rows"
        )


def _not_scored(scores: Scores) -> Iterator[str]:
    """How many users have no rows to be scored on, which a fraction of few rows leaves to none."""
    for name, group in (("existing", scores.existing_after), ("new", scores.new_after)):
        missing = 0 if group is None else int(np.count_nonzero(group.samples == 0))
        if group is not None and missing:
            yield (
                f"warning: {missing} of {len(group.clients)} {name} users have no {scores.part} rows and are not scored"
            )


def _why(history: Sequence[RoundReport], chosen: int) -> str:
    """By which number validation selected the round."""
    best = next((report.validation for report in history if report.round == chosen), None)
    if best is None:
        return ""
    value = -best.quality() if best.lower_is_better else best.quality()
    return f": its mean {best.metric} of users after fine-tuning, {value:.3f}, is the best"


def _lost(history: Sequence[RoundReport]) -> str:
    """How many clients that were asked were late, left or were away."""
    counts = dict.fromkeys(LOST, 0)
    for report in history:
        for failure in report.failures:
            if failure.reason in counts:
                counts[failure.reason] += 1
    return "".join(f", {count} {LOST[reason]}" for reason, count in counts.items() if count)
