"""`fedtempo schedule` and `fedtempo advise`: look before you train."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.table import Table
from torch import nn

from fedtempo.cli.options import AllowCode, AsJson, ExperimentPath, Overrides
from fedtempo.comparison import entrants_of
from fedtempo.config import make_algorithm, read, settings_of
from fedtempo.errors import ConfigError, is_count, require
from fedtempo.report import Rates, Section, plan_of, report, write_page
from fedtempo.study import middle_rates
from fedtempo.support.json_text import JsonTable, json_text
from fedtempo.support.terminal import Terminal, say
from fedtempo.tasks import PerSample, Task
from fedtempo.theory import Measurements, measure
from fedtempo.training.experiment import Experiment
from fedtempo.training.plan import (
    FROM_HISTORY,
    GRADIENTS,
    STEPS,
    PlannedRound,
    planned_rounds,
    planned_steps,
    positions,
    unplanned,
)
from fedtempo.training.prepare import prepare
from fedtempo.training.round_report import RoundReport
from fedtempo.training.storage.reader import RunReader

TRAVEL_RATIO = 1.05
"""Sums of rates that differ by less than this share are as good as equal."""


def schedule(
    experiment: ExperimentPath,
    overrides: Overrides = None,
    rounds: Annotated[str | None, typer.Option(help="Rounds to show, such as 1,2,50; ten of them by default.")] = None,
    samples: Annotated[
        int | None, typer.Option(help="A client's training samples; the median client's by default.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw all rounds into this HTML file.")] = None,
    after: Annotated[
        Path | None, typer.Option(help="A run of this experiment: show the values that its rounds used.")
    ] = None,
    algorithms: Annotated[
        str | None, typer.Option(help="Compare how far these algorithms go in a round, such as fedavg,feddecay")
    ] = None,
    allow_code: AllowCode = None,
    as_json: AsJson = False,
) -> None:
    """Print learning rate, weight decay, local steps and the personalization ratio R, by round and by step.

    What follows the loss, the clock, the gradients or a client's own loss is a ? before the run, except in round 1;
    --after RUN fills in what the run's rounds tell. With --algorithms it prints one line for each algorithm: the sums
    of its rates and of its factors in a round. A comparison at one common rate is not fair to algorithms with different
    sums; see `fedtempo compare --tune`.
    """
    require(samples is None or is_count(samples), "samples", "an int >= 1", samples)
    file = read(experiment, overrides, allow_code or [])
    prepared = prepare(**settings_of(file))
    problem = prepared.federation.problem
    history = [] if after is None else _history(after, prepared)
    chosen = _rounds(rounds, prepared.rounds if after is None else len(history))
    size = samples or int(np.median(problem.sizes[problem.data.clients]))
    if algorithms is not None:
        for name, value in (("--plot", plot), ("--after", after)):
            require(value is None, name, "left out with --algorithms", value)
        (now,) = positions(prepared, (), chosen[:1])
        entrants = {one.label: one.file for one in entrants_of(file, algorithms, only=True, rates=middle_rates)}
        made = {label: make_algorithm(own.algorithm.model_dump()) for label, own in entrants.items()}
        place = ([now.round], size, problem.batching, now)
        first = {label: next(planned_rounds(algorithm, *place)) for label, algorithm in made.items()}
        _show_travel(first, size, as_json)
        return
    plan = _plan(prepared, history, chosen, size)
    if plot is not None:
        drawn = Rates(repr(prepared.federation.algorithm), plan_of(prepared, history, size, every_round=True))
        page = report(
            [], title="Schedules", sections=[Section("What clients do between two aggregations", figure=drawn)]
        )
        write_page(plot, page, "plot")
    if as_json:
        say(json_text(plan.as_dict()))
        return
    console = Terminal()
    console.print(_round_table(prepared, plan, size))
    console.print(_step_table(plan))
    for line in plan.words(after is not None):
        say(line)


class _Plan(NamedTuple):
    """The rounds and steps to print; what only the run can tell is None."""

    rounds: list[dict[str, Any]]
    steps: list[dict[str, Any]]
    unknown: dict[str, tuple[str, ...]]
    """What each of the numbers that are None follows."""

    def as_dict(self) -> JsonTable:
        return {"rounds": self.rounds, "steps": self.steps, "depends_on": self.unknown}

    def words(self, after: bool) -> list[str]:
        """Why numbers are missing, and what fills them in."""
        lines = [f"? {name} depends on the run: it follows {' and '.join(w)}." for name, w in self.unknown.items()]
        told = {words for each in self.unknown.values() for words in each} & FROM_HISTORY
        return [*lines, "See what a run used: fedtempo schedule FILE --after RUN"] if told and not after else lines


def _plan(prepared: Experiment, history: Sequence[RoundReport], rounds: Sequence[int], size: int) -> _Plan:
    algorithm, batching = prepared.federation.algorithm, prepared.federation.problem.batching
    places = list(positions(prepared, history, rounds))
    found = unplanned(algorithm, places, size, batching, FROM_HISTORY if history else ())
    stepwise = {place for place, words in found.items() if GRADIENTS in words}
    by_round, by_step = list[dict[str, Any]](), list[dict[str, Any]]()
    for now in places:
        start = now.round == 0
        gone = set[tuple[int, str]]() if start else set(found)
        travels = (0, STEPS) in gone | stepwise or any(place[0] == 0 and place[1] == "lr" for place in gone | stepwise)
        for row in planned_rounds(algorithm, [now.round], size, batching, now):
            values = asdict(row) | dict.fromkeys(("ratio", "travel", "factors") if travels else ())
            values["round"] += 1
            values["steps"] = [None if (p, STEPS) in gone | stepwise else count for p, count in enumerate(row.steps)]
            values["server"] = {n: None if (-1, n) in gone else value for n, value in row.server.items()}
            by_round.append(values)
        for step in planned_steps(algorithm, [now.round], size, batching, now):
            if step.step and (step.phase, STEPS) in gone:
                continue
            unknown = gone if step.step == 0 else gone | stepwise
            rates = {n: None if (step.phase, n) in unknown else value for n, value in step.rates.items()}
            taken = None if (step.phase, STEPS) in gone | stepwise else step.steps
            place = {"round": step.round + 1, "phase": step.phase + 1, "step": step.step + 1}
            by_step.append({**place, "steps": taken, "rates": rates})
    several = len(algorithm.phases) > 1
    return _Plan(by_round, by_step, {_name(place, several): words for place, words in found.items()})


def _name(place: tuple[int, str], several: bool) -> str:
    phase, name = place
    return f"{name} of phase {phase + 1}" if several and phase >= 0 else name


def _history(folder: Path, prepared: Experiment) -> list[RoundReport]:
    """The rounds of a run of this algorithm."""
    reader = RunReader(folder)
    own, other = repr(prepared.federation.algorithm), reader.identity["algorithm"]
    require(own == other, "--after", f"a run of {own}", f"{folder}, a run of {other}")
    history = reader.refresh()
    require(len(history) > 0, "--after", "a run with one round or more", folder)
    return history


def advise(
    experiment: ExperimentPath,
    overrides: Overrides = None,
    clients: Annotated[int, typer.Option(help="Clients to measure: a sample drawn by the seed.")] = 16,
    gamma: Annotated[
        bool | None,
        typer.Option("--gamma/--no-gamma", help="Look for Gamma of a convex model; by default if that takes seconds."),
    ] = None,
    allow_code: AllowCode = None,
    as_json: AsJson = False,
) -> None:
    """Measure how much clients differ, and what local steps do to that: diversity, R and drift.

    Measured is a sample of the clients, and of each at most 256 rows.
    """
    settings = settings_of(read(experiment, overrides, allow_code or []))
    found = measured_before(prepare(**settings), settings["model"], settings["loss"], clients, gamma)
    told = {"measurements": asdict(found), "drift": found.drift, "ratio": found.ratio, "findings": found.findings}
    say(json_text(told) if as_json else str(found))


def measured_before(
    prepared: Experiment,
    model: nn.Module | Callable[[], nn.Module],
    loss: str | Task | PerSample | None,
    clients: int = 16,
    gamma: bool | None = None,
) -> Measurements:
    """What is measured before a run of this experiment, at its first rate and the median client's steps."""
    problem, phase = prepared.federation.problem, prepared.federation.algorithm.phases[0]
    (now,) = problem.places(problem.now(0, 1.0), problem.median_client)
    size = int(np.median(problem.sizes[problem.data.clients]))
    return measure(
        model,
        problem.data,
        lr=phase.lr.at(now),
        steps=phase.length.steps(now, size, problem.batching),
        rounds=prepared.rounds,
        loss=loss,
        clients=clients,
        seed=problem.seed,
        gamma=gamma,
    )


def _rounds(text: str | None, total: int) -> list[int]:
    """The rounds to show, from 0; users count from 1."""
    if text is None:
        return sorted({int(r) for r in np.linspace(0, total - 1, min(10, total))})
    try:
        chosen = [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"rounds must be ints with commas between them. Got {text!r}.") from None
    if not all(1 <= r <= total for r in chosen):
        raise ConfigError(f"rounds must be ints in [1, {total}]. Got {text!r}.")
    return sorted({number - 1 for number in chosen})


def _show_travel(first: Mapping[str, PlannedRound], size: int, as_json: bool) -> None:
    """How far each contestant goes in a round: the sum of its rates, and the same counted in first steps."""
    if as_json:
        say(json_text({label: asdict(row) | {"round": row.round + 1} for label, row in first.items()}))
        return
    number = next(iter(first.values())).round + 1
    title = f"round {number}, a client with {size} samples"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in ("contestant", "K", "sum of factors", "sum of rates", "R"):
        table.add_column(heading, justify="left" if heading == "contestant" else "right", overflow="fold")
    for label, row in first.items():
        steps = " + ".join(map(str, row.steps))
        table.add_row(label, steps, f"{row.factors:.4g}", f"{row.travel:.4g}", f"{row.ratio:.6g}")
    console = Terminal()
    console.print(table)
    furthest, nearest = max(row.travel for row in first.values()), min(row.travel for row in first.values())
    if nearest > 0 and furthest / nearest > TRAVEL_RATIO:
        console.print(
            f"The longest round goes {furthest / nearest:.3g} times as far as the shortest, and a comparison at these "
            "rates shows that first of all. Tune each contestant's rate: fedtempo compare --tune. With travel=equal "
            "FedDecay goes as far as FedAvg.",
            soft_wrap=True,
            markup=False,
            highlight=False,
        )


def _round_table(prepared: Experiment, plan: _Plan, size: int) -> Table:
    table = Table(title=f"{prepared.federation.algorithm!r}, a client with {size} samples")
    for heading in (
        "round",
        "local steps K",
        "sum of factors",
        "R (inner : average gradient)",
        *plan.rounds[0]["server"],
    ):
        table.add_column(heading, justify="right")
    for row in plan.rounds:
        steps = " + ".join("?" if count is None else str(count) for count in row["steps"])
        server = (_cell(value, 6) for value in row["server"].values())
        table.add_row(str(row["round"]), steps, _cell(row["factors"], 4), _cell(row["ratio"], 6), *server)
    return table


def _step_table(plan: _Plan) -> Table:
    table = Table(title="rates by step")
    names = list(dict.fromkeys(name for step in plan.steps for name in step["rates"]))
    for heading in ("round", "phase", "step", *names):
        table.add_column(heading, justify="right")
    for step in plan.steps[:200]:
        values = (_cell(step["rates"][n], 6) if n in step["rates"] else "-" for n in names)
        table.add_row(*(str(step[place]) for place in ("round", "phase", "step")), *values)
    if len(plan.steps) > 200:
        table.add_row("...", "", "", *("" for _ in names))
    return table


def _cell(value: float | None, digits: int) -> str:
    return "?" if value is None else f"{value:.{digits}g}"
