"""`fedtempo compare`: stored runs side by side, or algorithms run on one experiment file."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, get_args

import typer

from fedtempo.cli.fair import OUT, FairOptions, run_fair, show_fair
from fedtempo.cli.options import AllowCode, AsJson, OnDevice, Overrides, Quiet, device_override, workers_on
from fedtempo.comparison import (
    Comparison,
    Entrant,
    Method,
    compare_runs,
    labels_of,
    paper_table,
    stored_result,
    tables_of,
    tests_in_words,
    write_figures,
)
from fedtempo.comparison.entrants import entrants_of_files
from fedtempo.comparison.figures import Against
from fedtempo.config import EXPERIMENT, stored_file, without_places
from fedtempo.errors import ConfigError, OutputError, is_number, require, wrong
from fedtempo.report import follow, tidy_csv, tidy_rows, write_report
from fedtempo.study import Budget
from fedtempo.study.differences import differences_section
from fedtempo.study.plain import run_plainly
from fedtempo.support.files import write_atomically
from fedtempo.support.table import ResultTable
from fedtempo.support.terminal import Terminal, say
from fedtempo.training.pool import runs_at_once
from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport
from fedtempo.training.view import Run

Paths = Annotated[list[Path], typer.Argument(help="Run folders, or experiment files to run.", metavar="PATH...")]
Algorithms = Annotated[
    str | None,
    typer.Option(help="Run these on the experiment file, such as 'fedavg, feddecay:beta=0.4, fedprox:lr=0.1,mu=0.5'"),
]


class Style(StrEnum):
    """How tables are printed."""

    terminal = "terminal"
    markdown = "markdown"
    latex = "latex"


class Tests(StrEnum):
    """The paired tests."""

    t = "t"
    sign_flip = "sign-flip"
    auto = "auto"

    @property
    def method(self) -> Method:
        """The test that is meant; `auto` was the exact one for few seeds, which is significant less often."""
        return "sign-flip" if self is Tests.sign_flip else "t"


def compare(
    paths: Paths,
    algorithms: Algorithms = None,
    seeds: Annotated[int | None, typer.Option(help="Seeds of each contestant; 1 by default, 5 with --tune.")] = None,
    only: Annotated[bool, typer.Option("--only", help="Leave out the baselines FedAvg and local training.")] = False,
    overrides: Overrides = None,
    device: OnDevice = None,
    target: Annotated[float | None, typer.Option(help="Also print what it cost to reach this score.")] = None,
    reference: Annotated[str | None, typer.Option(help="Compare with this contestant; the first by default.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A folder for the runs, comparison.csv, .json, .md, .tex, tidy.csv and report.html."),
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the numbers into this CSV file.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write a report page into this HTML file.")] = None,
    style: Annotated[
        Style, typer.Option("--format", help="Print tables for a terminal, for Markdown or for LaTeX.")
    ] = Style.terminal,
    columns: Annotated[
        str | None,
        typer.Option(help="Columns of the table of scores, such as existing_after/mean,new_after/worst_tenth,bytes."),
    ] = None,
    test: Annotated[
        Tests, typer.Option(help="The paired test over seeds: Student's, or the exact one; auto is Student's.")
    ] = Tests.t,
    figures: Annotated[Path | None, typer.Option(help="A folder for figures as SVG, PDF and PNG.")] = None,
    x: Annotated[
        str, typer.Option("--x", help="What figures are drawn against: rounds, bytes, steps, flops, seconds or time.")
    ] = "rounds",
    workers: Annotated[
        int | None, typer.Option(help="Runs at a time, each in one process; by default what is faster, 1 with --tune.")
    ] = None,
    tune: Annotated[
        bool,
        typer.Option("--tune", help="First tune every contestant with the same budget, then judge on fresh seeds."),
    ] = False,
    trials: Annotated[int | None, typer.Option(help="With --tune: trials of each contestant; 8 by default.")] = None,
    tuning_seeds: Annotated[
        int | None, typer.Option(help="With --tune: seeds of each trial, never judged; 2 by default.")
    ] = None,
    tuning_rounds: Annotated[
        int | None, typer.Option(help="With --tune: rounds of a trial; those of the experiment by default.")
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(help="With --tune: end a run after so many evaluations without improvement; 5 by default."),
    ] = None,
    margin: Annotated[
        float | None, typer.Option(help="With --tune: the largest difference that counts as none; 0.01 by default.")
    ] = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option("--range", help="With --tune: what is tried, such as 'pflego/algorithm.head_lr={log=[0.01,1.0]}'"),
    ] = None,
    claims: Annotated[
        list[str] | None, typer.Option("--claim", help="With --tune: a pair to judge, such as 'feddecay > fedavg'.")
    ] = None,
    redraw: Annotated[
        bool, typer.Option("--redraw-data", help="With --tune: every seed draws its own split of the data.")
    ] = False,
    allow_code: AllowCode = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare runs, paired over seeds and users: scores, differences with intervals, costs, cost to a target.

    Run folders are read as they are. An experiment file is run with each of the algorithms, and with FedAvg and local
    training as baselines unless --only is given.

    With --tune every contestant's rates are tuned first. The plan is written to --out (by default: compared) before any
    run. The answers are better, worse, no difference, can't tell or not converged.
    """
    overrides = [*(overrides or []), *device_override(device)]
    workers = workers_on(device, workers)
    tuning = {
        "trials": trials,
        "tuning_seeds": tuning_seeds,
        "tuning_rounds": tuning_rounds,
        "patience": patience,
        "margin": margin,
        "range": ranges or None,
        "claim": claims or None,
        "redraw_data": redraw or None,
    }
    given = {name: value for name, value in tuning.items() if value is not None}
    require(x in get_args(Against), "--x", " or ".join(map(repr, get_args(Against))), x)
    require(figures is not None or x == "rounds", "--x", "left out without --figures", x)
    against: Against = x  # type: ignore[assignment]
    if tune:
        _refuse_with_tune(paths, csv, report, style, columns)
        options = FairOptions(
            paths=paths,
            algorithms=algorithms,
            only=only,
            overrides=overrides or [],
            ranges=ranges or [],
            claims=claims or [],
            reference=reference,
            target=target,
            redraw=redraw,
            budget=_budget({**given, "test": test.method, **({} if seeds is None else {"seeds": seeds})}),
            out=out or OUT,
            workers=1 if workers is None else workers,
            allow_code=allow_code or [],
        )
        _compare_fairly(options, figures, against, as_json, quiet)
        return
    if given:
        name, value = next(iter(given.items()))
        raise wrong(f"--{name.replace('_', '-')}", "given with --tune only", value)
    require(target is None or is_number(target), "target", "a finite number", target)
    folders = [path for path in paths if path.is_dir()]
    page = report or (None if out is None else out / "report.html")
    if folders and len(folders) < len(paths):
        raise ConfigError(f"paths must be run folders or experiment files, not both. Got {folders[0]} among files.")
    results: list[Result] = []
    if folders:
        _refuse_with_folders(algorithms, seeds, only, overrides)
        runs = [Run.of(folder).completed() for folder in folders]
    else:
        entrants = entrants_of_files(paths, overrides or [], algorithms, only, allow_code=allow_code or [])
        drawn = page is not None
        results, runs = _trained(entrants, 1 if seeds is None else seeds, out, workers, quiet or as_json, drawn)
    comparison = compare_runs(runs, reference, target)
    method: Method = test.method
    chosen = [] if columns is None else [key.strip() for key in columns.split(",")]
    paper_table(comparison, method).choose(*chosen)  # an unknown column is refused before anything is written
    _write(comparison, runs, out, csv, method, chosen)
    if figures is not None:
        write_figures(comparison, runs, figures, against)
    if page is not None:
        shown = results or [_result(folder, allow_code or []) for folder in folders]
        labels = labels_of(runs)
        by_label: dict[str, list[Run]] = {}
        for label, run in zip(labels, runs, strict=True):
            by_label.setdefault(label, []).append(run)
        first = differences_section(comparison, by_label)
        write_report(shown, page, labels, "FedTempo comparison", sections=[] if first is None else [first])
    _show(comparison, page, as_json, style, method, chosen)


def _compare_fairly(options: FairOptions, figures: Path | None, x: Against, as_json: bool, quiet: bool) -> None:
    """Carry out the fair comparison, draw its figures and print its answers."""
    found = run_fair(options, quiet or as_json)
    if figures is not None:
        write_figures(found.comparison, found.runs, figures, x)
    say(found.json()) if as_json else show_fair(found, options.out)


def _trained(
    entrants: Sequence[Entrant], seeds: int, out: Path | None, workers: int | None, quiet: bool, drawn: bool
) -> tuple[list[Result], list[Run]]:
    """The runs of all contestants, side by side where that is faster; says which way it goes.

    With the results of the runs if they are to be `drawn`: a page shows their data too.
    """
    at_once = runs_at_once(workers, seeds * len(entrants), seeds * sum(entrant.file.rounds for entrant in entrants))
    if not quiet:
        say(str(at_once), error=True)

    def shown(rounds: Generator[RoundReport, None, Result], total: int, label: str) -> Result:
        return follow(rounds, total, label=label, quiet=quiet)

    def observe(done: int, total: int, name: str) -> None:
        if not quiet and at_once.workers > 1:
            say(f"{done}/{total}: {name}", error=True)

    with TemporaryDirectory() if out is None else nullcontext(out) as place:
        ended = run_plainly(entrants, seeds, Path(place), shown, at_once.workers, observe)
        results = [stored_result(one.folder, one.file) for one in ended] if drawn else []
        runs = [Run.of(one.folder, one.label) for one in ended]
    return results, runs


def _budget(given: Mapping[str, Any]) -> Budget:
    known = {field.name for field in fields(Budget)}
    return Budget(**{name: value for name, value in given.items() if name in known})


def _refuse_with_tune(
    paths: Sequence[Path], csv: Path | None, report: Path | None, style: Style, columns: str | None
) -> None:
    """What only a comparison without tuning has; the folder of a fair comparison has tables and a page anyway."""
    folder = next((path for path in paths if path.is_dir()), None)
    require(folder is None, "paths", "experiment files with --tune, not run folders", folder)
    plain = style if style is not Style.terminal else None
    for name, given in (("csv", csv), ("report", report), ("format", plain), ("columns", columns)):
        require(given is None, f"--{name}", "left out with --tune: tables and the page are in --out", given)


def _refuse_with_folders(algorithms: str | None, seeds: int | None, only: bool, overrides: list[str] | None) -> None:
    for name, given in (
        ("algorithms", algorithms),
        ("seeds", seeds),
        ("only", only or None),
        ("set", overrides or None),
    ):
        require(given is None, f"--{name}", "left out with run folders: they have been run", given)


def _result(folder: Path, allow_code: list[str]) -> Result:
    if not (folder / EXPERIMENT).exists():
        raise OutputError(f"a report page needs the {EXPERIMENT} of each run. Got {folder}, which has none.")
    return stored_result(folder, without_places(stored_file(folder / EXPERIMENT, allow_code)))


def _write(
    comparison: Comparison,
    runs: Sequence[Run],
    out: Path | None,
    csv: Path | None,
    method: Method,
    columns: Sequence[str],
) -> None:
    files = {} if csv is None else {csv: comparison.csv()}
    if out is not None:
        rows = [row for run, label in zip(runs, labels_of(runs), strict=True) for row in _rows(run, label)]
        files |= {
            out / "comparison.csv": comparison.csv(),
            out / "comparison.json": comparison.json(),
            out / "comparison.md": _chosen(paper_table(comparison, method), columns).markdown(),
            out / "comparison.tex": _chosen(paper_table(comparison, method), columns).latex(),
            out / "tidy.csv": tidy_csv(rows),
        }
    for path, text in files.items():
        write_atomically(path, text, path.name)


def _rows(run: Run, label: str) -> list[dict[str, Any]]:
    return tidy_rows(run.history, label, run.seed)


def _chosen(table: ResultTable, columns: Sequence[str]) -> ResultTable:
    return table.choose(*columns) if columns else table


def _show(
    comparison: Comparison, page: Path | None, as_json: bool, style: Style, method: Method, columns: Sequence[str]
) -> None:
    if as_json:
        say(comparison.json())
        return
    if style is not Style.terminal:
        table = _chosen(paper_table(comparison, method), columns)
        say((table.markdown() if style is Style.markdown else table.latex()).rstrip())
        return
    console = Terminal()
    scores, *others = tables_of(comparison)
    for table in (_chosen(paper_table(comparison, method), columns) if columns else scores, *others):
        console.print(table.terminal(console.width))
        console.print()
    for line in tests_in_words(comparison, method):
        say(line)
    for note in comparison.notes:
        say(f"note: {note}")
    if page is not None:
        console.print(f"Curves and users: {page}", soft_wrap=True)
