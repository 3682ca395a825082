"""`fedtempo schedule` and `fedtempo advise`: look before you train."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table
from torch import nn

from fedtempo.cli.options import AsJson, ExperimentPath, Overrides
from fedtempo.comparison import entrants_of
from fedtempo.config import make_algorithm, read, settings_of
from fedtempo.errors import ConfigError, is_count, require
from fedtempo.report import Lines, Section, report, write_page
from fedtempo.study import middle_rates
from fedtempo.support.json_text import json_text
from fedtempo.support.terminal import Terminal, say
from fedtempo.tasks import PerSample, Task
from fedtempo.theory import Measurements, measure
from fedtempo.training.experiment import Experiment
from fedtempo.training.plan import PlannedRound, PlannedStep, planned_rounds, planned_steps
from fedtempo.training.prepare import prepare

TRAVEL_RATIO = 1.05
"""Sums of rates that differ by less than this share are as good as equal."""


def schedule(
    experiment: ExperimentPath,
    overrides: Overrides = None,
    rounds: Annotated[str | None, typer.Option(help="Rounds to show, such as 0,1,50; ten of them by default.")] = None,
    samples: Annotated[
        int | None, typer.Option(help="A client's training samples; the median client's by default.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw the schedules into this HTML file.")] = None,
    algorithms: Annotated[
        str | None, typer.Option(help="Compare how far these algorithms go in a round, such as fedavg,feddecay")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print learning rate, weight decay, local steps and the personalization ratio R, by round and by step.

    With --algorithms it prints one line for each algorithm: the sums of its rates and of its factors in a round. A
    comparison at one common rate is not fair to algorithms with different sums; see `fedtempo compare --tune`.
    """
    require(samples is None or is_count(samples), "samples", "an int >= 1", samples)
    file = read(experiment, overrides)
    prepared = prepare(**settings_of(file))
    problem = prepared.federation.problem
    chosen = _rounds(rounds, prepared.rounds)
    size = samples or int(np.median(problem.sizes[problem.data.clients]))
    now = problem.now(0, prepared.cohort.expected(problem.now(0, 1.0), len(problem.data.clients)))
    (now,) = problem.places(now, problem.median_client)
    place = (chosen, size, problem.batching, now)
    if algorithms is not None:
        require(plot is None, "--plot", "left out with --algorithms", plot)
        entrants = {one.label: one.file for one in entrants_of(file, algorithms, only=True, rates=middle_rates)}
        made = {label: make_algorithm(own.algorithm.model_dump()) for label, own in entrants.items()}
        first = {label: next(planned_rounds(algorithm, *place)) for label, algorithm in made.items()}
        _show_travel(first, size, as_json)
        return
    plan = (prepared.federation.algorithm, *place)
    by_round, by_step = list(planned_rounds(*plan)), list(planned_steps(*plan))
    if plot is not None:
        _draw(by_step, plot)
    if as_json:
        say(json_text({"rounds": [asdict(r) for r in by_round], "steps": [asdict(s) for s in by_step]}))
        return
    console = Terminal()
    console.print(_round_table(prepared, by_round, size))
    console.print(_step_table(by_step))


def advise(
    experiment: ExperimentPath,
    overrides: Overrides = None,
    clients: Annotated[int, typer.Option(help="Clients to measure: a sample drawn by the seed.")] = 16,
    gamma: Annotated[
        bool | None,
        typer.Option("--gamma/--no-gamma", help="Look for Gamma of a convex model; by default if that takes seconds."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure how much clients differ, and what local steps do to that: diversity, R and drift.

    Measured is a sample of the clients, and of each at most 256 rows.
    """
    settings = settings_of(read(experiment, overrides))
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
    if text is None:
        return sorted({int(r) for r in np.linspace(0, total - 1, min(10, total))})
    try:
        chosen = [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"rounds must be ints with commas between them. Got {text!r}.") from None
    if not all(0 <= r < total for r in chosen):
        raise ConfigError(f"rounds must be ints in [0, {total}). Got {text!r}.")
    return chosen


def _show_travel(first: Mapping[str, PlannedRound], size: int, as_json: bool) -> None:
    """How far each contestant goes in a round: the sum of its rates, and the same counted in first steps."""
    if as_json:
        say(json_text({label: asdict(row) for label, row in first.items()}))
        return
    number = next(iter(first.values())).round
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


def _round_table(prepared: Experiment, rounds: Sequence[PlannedRound], size: int) -> Table:
    table = Table(title=f"{prepared.federation.algorithm!r}, a client with {size} samples")
    for heading in ("round", "local steps K", "sum of factors", "R (inner : average gradient)", *rounds[0].server):
        table.add_column(heading, justify="right")
    for row in rounds:
        steps = " + ".join(map(str, row.steps))
        table.add_row(
            str(row.round), steps, f"{row.factors:.4g}", f"{row.ratio:.6g}", *(f"{v:.6g}" for v in row.server.values())
        )
    return table


def _step_table(steps: Sequence[PlannedStep]) -> Table:
    table = Table(title="rates by step")
    names = list(dict.fromkeys(name for step in steps for name in step.rates))
    for heading in ("round", "phase", "step", *names):
        table.add_column(heading, justify="right")
    for step in steps[:200]:
        values = (f"{step.rates[n]:.6g}" if n in step.rates else "-" for n in names)
        table.add_row(str(step.round), str(step.phase), str(step.step), *values)
    if len(steps) > 200:
        table.add_row("...", "", "", *("" for _ in names))
    return table


def _draw(steps: Sequence[PlannedStep], path: Path) -> None:
    curves: dict[str, list[tuple[float, float]]] = {}
    for step in steps:
        for name, rate in step.rates.items():
            place = (step.round + step.step / max(step.steps, 1), rate)
            curves.setdefault(f"{name}, phase {step.phase}", []).append(place)
    drawn = Section("Rates over rounds and steps", figure=Lines(curves, "round", "rate"))
    write_page(path, report([], title="Rates over rounds and steps", sections=[drawn]), "plot")
