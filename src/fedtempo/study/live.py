"""The page of a study that is going on: who is tuned, who is judged, and how long the rest will take."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

from fedtempo.comparison.entrants import slug
from fedtempo.report import REPORT, Grid, Section, report
from fedtempo.study.driver import Observe
from fedtempo.study.jobs import trial_score
from fedtempo.study.plan import FairPlan
from fedtempo.study.tunable import Tunable
from fedtempo.support.files import write_atomically
from fedtempo.training.storage.database import DATABASE

EVERY_SECONDS = 10
HEAD = '<meta charset="utf-8">'


def live_page(plan: FairPlan, tunables: Sequence[Tunable], folder: Path, observe: Observe) -> Observe:
    """An observer that also writes the folder's page anew after each run; open in a browser, it loads itself again."""
    started, before = time.monotonic(), -1

    def seen(done: int, total: int, name: str) -> None:
        nonlocal before
        observe(done, total, name)
        before = done if before < 0 or done < before else before
        ended = done - before
        left = "" if ended < 1 else _left((time.monotonic() - started) / ended * (total - done))
        page = report(
            [],
            title=plan.title or "A study",
            sections=[
                Section("So far", f"{done} of {total} runs of this stage: {name}{left}"),
                Section("Contestants", table=Grid(HEADINGS, [_row(one.label, plan, folder) for one in tunables])),
                Section("The plan, written before the first run", "\n".join(plan.in_words())),
            ],
        )
        again = f'{HEAD}<meta http-equiv="refresh" content="{EVERY_SECONDS}">'
        write_atomically(folder / REPORT, page.replace(HEAD, again, 1), "out")

    return seen


HEADINGS = ["contestant", "trials done", "best validation score so far", "judged runs begun"]


def _row(label: str, plan: FairPlan, folder: Path) -> list[str | float | int | None]:
    place = slug(label)
    trials = [trial_score(path) for path in sorted((folder / "tuning" / place).glob("*.json"))]
    scores = [one["best"] for one in trials if one is not None and one["best"] is not None]
    planned = (
        len(plan.contestants[label]["points"]) * len(plan.tuning_seeds) if plan.contestants[label]["ranges"] else 0
    )
    judged = len(list((folder / "runs" / place).glob(f"*/{DATABASE}")))
    best = plan.in_unit(max(scores)) if scores else None
    return [label, f"{len(trials)} of {planned} or more" if planned else "-", best, f"{judged} of {len(plan.seeds)}"]


def _left(seconds: float) -> str:
    return f"; about {math.ceil(seconds / 60)} minutes left in this stage"
