"""`fedtempo reproduce`: the papers' tables and figures, beside our own numbers."""

from __future__ import annotations

import json
import math
import platform
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table

from fedtempo.cli.data import DataDir
from fedtempo.cli.options import AsJson, OnDevice, Quiet, workers_on
from fedtempo.cli.reproduction_page import write_reproduction
from fedtempo.config.pairs import pairs_of
from fedtempo.errors import ConfigError, is_count, require, unknown
from fedtempo.papers import REPRODUCTIONS, SCALES, Reproduction
from fedtempo.papers import reproduce as perform
from fedtempo.papers.framework.changed import on_device, with_settings
from fedtempo.papers.framework.choosing import plan_record
from fedtempo.papers.framework.counting import judged_outcome, write_index
from fedtempo.papers.framework.definitions import Scale
from fedtempo.papers.framework.documents import JUDGED, save_into_docs, stored_runs
from fedtempo.papers.framework.kept import SeededRun
from fedtempo.papers.framework.outcomes import Outcome
from fedtempo.papers.framework.pages import (
    QUICK_LOOK,
    claims_and_verdicts,
    is_quick_look,
    outcome_record,
    rich_table,
    save,
)
from fedtempo.papers.framework.probing import estimated_seconds, timed_seconds, what_is_left
from fedtempo.papers.framework.repeated import in_lines, repetitions, stored_of, take_trials
from fedtempo.papers.framework.running import judged_runs, plan, require_data_sets, trial_runs, with_choices
from fedtempo.papers.framework.stored import StoredRuns, read_stored_runs
from fedtempo.papers.framework.stored_outcome import stored_outcome
from fedtempo.papers.situation_table import PAGE, write_situations
from fedtempo.papers.ten_claims import TEN, write_claims
from fedtempo.study.driver import Observe
from fedtempo.study.estimate import duration
from fedtempo.support.accelerator import device_of
from fedtempo.support.kind import in_words, kind_here
from fedtempo.support.terminal import Terminal, say
from fedtempo.training.pool import LEAST_ROUNDS, runs_at_once

ENVIRONMENT = ("torch", "numpy")
HERE, STORED = Path("docs") / "results", "stored"
"""Where a clone has the stored runs, and the word for them."""
SHOWN = tuple(scale for scale in SCALES if scale != "smoke")


def reproduce(
    name: Annotated[str | None, typer.Argument(help="The reproduction; --list shows all.")] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the reproductions and how long each takes.")] = False,
    paper: Annotated[
        str | None, typer.Option(help="With --list: only those of this paper, such as feddecay or pflego.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="With --list: only those that take at most so many minutes at --scale.")
    ] = None,
    scale: Annotated[
        str,
        typer.Option(
            help="smoke (seconds), small (a quick look), medium (tuned and converged, up to an hour) or paper (the"
            " paper's setting)."
        ),
    ] = "small",
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Another setting than the scale's, repeatable: rounds=20, model.hidden=[32]."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Only this label, repeatable; with --docs, --seeds adds to it.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds; the scale's own by default.")] = None,
    data_dir: DataDir = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder for runs, tables and figures; reproduced/NAME/SCALE by default.")
    ] = None,
    docs: Annotated[
        Path | None,
        typer.Option(
            help="Also put the section into the paper's page in this folder. Runs of the medium scale are taken from"
            " its runs/NAME.json, and added to it."
        ),
    ] = None,
    from_stored: Annotated[
        bool,
        typer.Option(
            "--from-stored", help="Train nothing: make the pages from the runs stored below --docs; all without a NAME."
        ),
    ] = False,
    compare_with: Annotated[
        str | None,
        typer.Option(
            help="A file of stored runs, or `stored` for docs/results/runs/NAME.json: run again with its rates, and say"
            " where the numbers differ."
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Runs at the same time, by default one per processor; changes no number.")
    ] = None,
    device: OnDevice = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run a paper's table or figure; print its values beside ours and a verdict on each claim.

    Finished runs are kept in the folder: the same command goes on where it was interrupted.
    """
    if list_all:
        _list(_chosen(paper, minutes, scale), as_json)
        return
    for given, option in ((paper, "--paper"), (minutes, "--minutes")):
        require(given is None, option, "used with --list", given)
    require(workers is None or is_count(workers), "workers", "an int >= 1", workers)
    require(docs is not None or not from_stored, "--from-stored", "given with --docs", from_stored)
    for asked, option in ((only, "--only"), (seeds, "--seeds")):
        require(not (from_stored and asked), option, "left out with --from-stored: all stored runs are shown", asked)
    for other, option in ((changes, "--set"), (compare_with, "--compare-with"), (device, "--device")):
        require(not (docs and other), option, "left out with --docs, which shows the scale's own stored runs", other)
    if name is None and from_stored and docs is not None:
        _write_all_pages(docs)
        return
    chosen = _named(name)
    if changes:
        chosen = with_settings(chosen, scale, pairs_of(changes, "--set"))
    if device is not None:
        chosen = on_device(chosen, device_of(device))
    named = [*(changes or ()), *([] if device is None else [device])]
    folder = out or Path("reproduced") / chosen.name / "-".join([scale, *(_in_a_path(one) for one in named)])
    stored = stored_runs(docs, chosen.name) if docs is not None and scale == JUDGED else None
    repeated = None if compare_with is None else _stored_before(chosen, scale, folder, only or (), compare_with)
    if from_stored:
        outcome = _from_stored(chosen, scale, stored)
    else:
        outcome = _trained(
            chosen, scale, folder, stored, seeds, only or (), data_dir, workers_on(device, workers), quiet or as_json
        )
    paths = _written(chosen, outcome, folder, docs, stored)
    if repeated is not None:
        judged = judged_runs(chosen, with_choices(chosen.scales[scale], outcome.choices), seeds, folder, only or ())
        for line in in_lines(*repetitions(judged, repeated)):
            say(line, error=True)
    if as_json:
        say(json.dumps(outcome_record(chosen, outcome)))
        return
    _show(chosen, outcome, paths)


def _in_a_path(change: str) -> str:
    """A change of settings as part of a folder's name."""
    return "".join(letter if letter.isalnum() or letter in "=._" else "_" for letter in change)


def _stored_before(
    chosen: Reproduction, scale: str, folder: Path, only: Sequence[str], compare_with: str
) -> StoredRuns:
    """The stored runs to compare with; their trials are taken, so that the same rates are chosen."""
    path = stored_runs(HERE, chosen.name) if compare_with == STORED else Path(compare_with)
    require(path.is_file(), "--compare-with", f"{STORED!r} in a clone, or a file of stored runs", str(path))
    found = stored_of(chosen, scale, path)
    take_trials(chosen, scale, folder, only, found)
    return found


def _write_all_pages(docs: Path) -> None:
    """Every page of results, from the stored runs."""
    for name, chosen in REPRODUCTIONS.items():
        stored = stored_runs(docs, name)
        outcome, record = judged_outcome(chosen, docs), read_stored_runs(stored)
        if outcome is not None and record is not None:
            say(str(save_into_docs(chosen, outcome, docs, record["provenance"])))
    _write_overviews(docs)


def _write_overviews(docs: Path) -> list[Path]:
    """The first page of results, each paper's claims, and which method when."""
    if (docs.parent / PAGE).exists():
        write_situations(docs.parent / PAGE, docs)
    return [write_index(REPRODUCTIONS.values(), docs), *write_claims(docs, TEN)]


def _from_stored(chosen: Reproduction, scale: str, stored: Path | None) -> Outcome:
    """What the stored runs say."""
    outcome = stored_outcome(chosen, scale, stored) if stored is not None else None
    if outcome is None:
        raise ConfigError(f"no run of {chosen.name} is stored on enough seeds. Leave out --from-stored to train.")
    return outcome


def _trained(
    chosen: Reproduction,
    scale: str,
    folder: Path,
    stored: Path | None,
    seeds: int | None,
    only: Sequence[str],
    data_dir: Path | None,
    workers: int | None,
    silent: bool,
) -> Outcome:
    """Perform what is missing. Where runs are stored, the outcome has all that are, not only those asked for now."""
    tasks = plan(chosen, scale, seeds, folder, only)
    require_data_sets(tasks, data_dir)
    at_once = runs_at_once(workers, len(tasks), LEAST_ROUNDS)  # no reproduction has fewer
    if not silent:
        say(str(at_once), error=True)
        store = None if stored is None else StoredRuns(stored, plan_record(chosen, scale, 1))
        every = [*trial_runs(chosen, chosen.scales[scale], folder, only), *tasks]
        _say_how_long(chosen.scales[scale], every, store, data_dir, at_once.workers)
    with _said_how_to_go_on():
        outcome = perform(
            chosen,
            scale,
            folder,
            seeds=seeds,
            only=only,
            data_dir=data_dir,
            processes=at_once.workers,
            observe=_observer(silent),
            stored=stored,
            provenance=_provenance(),
        )
    everything = None if stored is None else stored_outcome(chosen, scale, stored)
    return everything or outcome


def _named(name: str | None) -> Reproduction:
    if name is None:
        raise ConfigError(f"a name must be given. Known: {', '.join(REPRODUCTIONS)}.")
    if name not in REPRODUCTIONS:
        raise unknown("reproduction", name, REPRODUCTIONS)
    return REPRODUCTIONS[name]


def _say_how_long(
    sized: Scale, tasks: Sequence[SeededRun], store: StoredRuns | None, data_dir: Path | None, at_once: int
) -> None:
    """What is left, from the times of finished runs; without any, from a few rounds or from another machine's time."""
    waiting, timed = what_is_left(tasks, store)
    seconds, how = timed_seconds(waiting, timed), f"from {len(timed)} that were timed"
    if seconds is None and sized.tuning is None:
        seconds, how = estimated_seconds(waiting, data_dir, at_once) * at_once, "from a few rounds of each"
    if seconds is None:
        seconds, how = 120 * sized.minutes * len(waiting) / len(tasks), "on another machine, for all labels and seeds"
    left = duration(seconds / max(1, min(at_once, len(waiting))))
    say(f"{len(waiting)} of {len(tasks)} runs are left: about {left} ({how})", error=True)


def _written(
    chosen: Reproduction, outcome: Outcome, folder: Path, docs: Path | None, stored: Path | None
) -> list[Path]:
    """Write tables, figures and pages; those in the documentation too, where its folder is given."""
    kept = read_stored_runs(stored) if stored else None
    provenance: str = kept["provenance"] if kept else _provenance()
    paths = [*save(chosen, outcome, folder, provenance), write_reproduction(chosen, outcome, folder, provenance)]
    if docs is None:
        return paths
    paths.append(save_into_docs(chosen, outcome, docs, provenance))
    if stored is not None:
        paths += _write_overviews(docs)
    return paths


def _show(chosen: Reproduction, outcome: Outcome, paths: list[Path]) -> None:
    console = Terminal(highlight=False)
    console.print(rich_table(chosen, outcome))
    if is_quick_look(chosen, outcome.scale):
        console.print(QUICK_LOOK)
    for text, answer, reason in claims_and_verdicts(chosen, outcome):
        console.print(f"[bold]{answer}[/bold]: " if answer else "", end="", markup=True)
        console.print(f"{text} ({reason})", markup=False, soft_wrap=True)
    console.print(f"written: {', '.join(map(str, paths))}", markup=False, soft_wrap=True)


def _chosen(paper: str | None, minutes: float | None, scale: str) -> dict[str, Reproduction]:
    """What the list shows."""
    papers = dict.fromkeys(one.paper for one in REPRODUCTIONS.values())
    if paper is not None and paper not in papers:
        raise unknown("paper", paper, papers)
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    limit = math.inf if minutes is None else minutes
    return {
        name: one
        for name, one in REPRODUCTIONS.items()
        if paper in (None, one.paper) and scale in one.scales and one.scales[scale].minutes <= limit
    }


def _list(chosen: dict[str, Reproduction], as_json: bool) -> None:
    """A line each, however narrow the terminal is: what does not fit is cut off."""
    minutes = {name: {s: one.scales[s].minutes for s in one.scales} for name, one in chosen.items()}
    if as_json:
        lines = [
            {"name": name, "paper": one.paper, "source": one.source, "title": one.title, "minutes": minutes[name]}
            for name, one in chosen.items()
        ]
        say(json.dumps(lines, indent=1))
        return
    columns = [Column(s, no_wrap=True, justify="right") for s in SHOWN]
    what = Column("what", no_wrap=True, overflow="ellipsis", ratio=1)
    table = Table(Column("name", no_wrap=True), what, *columns, box=None, pad_edge=False, expand=True)
    for name, one in chosen.items():
        times = (duration(60 * minutes[name][s]) if s in minutes[name] else "-" for s in SHOWN)
        table.add_row(name, f"{one.source}: {one.title}", *times)
    Terminal().print(table)
    say("Times are for two cores; smoke takes seconds. --paper, --minutes: fewer rows.")


def _observer(quiet: bool) -> Observe:
    def observe(done: int, total: int, name: str) -> None:
        if not quiet:
            say(f"{done}/{total} {name}", error=True)

    return observe


@contextmanager
def _said_how_to_go_on() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        say("fedtempo: finished runs are kept; the same command goes on", error=True)
        raise


def _provenance() -> str:
    """When, from which commit and with what."""
    parts = [f"{name} {version(name)}" for name in ENVIRONMENT]
    commit = _commit()
    source = f"commit {commit}" if commit else f"fedtempo {version('fedtempo')}"
    when = f"{datetime.now(UTC):%Y-%m-%d}, {source}, Python {platform.python_version()}, {', '.join(parts)}"
    return f"{when}. Kind of processor: {in_words(kind_here())}."


def _commit(package: Path = Path(__file__).parents[1]) -> str:
    """The commit of a working copy, "-dirty" where the package was changed since; nothing for an installed package."""
    if not _git(package, "ls-files", "__init__.py"):
        return ""
    # The pages that a reproduction writes are changes too, but the program stays the same.
    changed = _git(package, "status", "--porcelain", "--", ".")
    return _git(package, "describe", "--always", "--exclude=*") + ("-dirty" if changed else "")


def _git(folder: Path, *command: str) -> str:
    try:
        whole = ["git", "-C", str(folder), *command]
        done = subprocess.run(whole, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
