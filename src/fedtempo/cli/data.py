"""`fedtempo data`: what there is, getting it, looking at it, checking it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.table import Table as Grid

from fedtempo.config.pairs import pairs_of
from fedtempo.data import summary
from fedtempo.data.files.cache import verify_arrays
from fedtempo.data.files.download import get_files
from fedtempo.data.files.folders import cache_folder, missing, present, sha256_of
from fedtempo.data.files.published import DataSet
from fedtempo.data.load import DATASETS, load
from fedtempo.data.splits import SPLITS
from fedtempo.errors import ConfigError, DataError, unknown
from fedtempo.support.display import shown_by
from fedtempo.support.terminal import Terminal

shown_by("fedtempo.report")  # this command does not load training, which says so elsewhere

app = typer.Typer(help="Data sets: list, get, describe, verify.", no_args_is_help=True, add_completion=False)

Name = Annotated[str, typer.Argument(help="The data set; `fedtempo data list` shows all.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
DataDir = Annotated[
    Path | None, typer.Option(help="The folder with the data files; else FEDTEMPO_DATA, else the downloads.")
]
CacheDir = Annotated[Path | None, typer.Option(help="The cache folder; else FEDTEMPO_CACHE, else the platform's.")]
_HEADINGS = {"about": "", "clients": "natural clients: ", "licence": "licence: ", "citation": "cite: "}


@app.command("list")
def list_data(data_dir: DataDir = None, cache_dir: CacheDir = None, as_json: AsJson = False) -> None:
    """Show every data set: whether it is here, its size, licence, citation and natural clients."""
    cache = cache_folder(cache_dir)
    lines = {name: _line(one, data_dir, cache) for name, one in DATASETS.items()}
    if as_json:
        _print_json(lines)
        return
    console = Terminal(highlight=False)
    for name, line in lines.items():
        console.print(f"[bold]{name}[/bold] ({_state(line)})", markup=True)
        for field in ("about", "clients", "licence", "citation"):
            console.print(f"  {_HEADINGS[field]}{line[field]}", markup=False, soft_wrap=not console.is_terminal)


def _state(line: dict[str, Any]) -> str:
    if line["generated"]:
        return "always here"
    if line["here"]:
        return f"here, {line['bytes'] / 1e6:.1f} MB"
    size = line["download_bytes"]
    return f"not here; {size / 1e6:.1f} MB to download" if size else f"not here; not one download, see {line['page']}"


def _line(entry: DataSet, data_dir: Path | None, cache: Path) -> dict[str, Any]:
    found = present(entry, data_dir, cache)
    return {
        "here": found is not None or not entry.ways,
        "generated": not entry.ways,
        "bytes": sum(path.stat().st_size for path in (found or {}).values()),
        "download_bytes": sum(file.size for file in entry.downloads),
        "files": {file: str(path) for file, path in (found or {}).items()},
        "about": entry.about,
        "clients": entry.clients,
        "licence": entry.licence,
        "citation": entry.citation,
        "page": entry.page,
    }


@app.command()
def get(
    name: Name,
    source: Annotated[Path | None, typer.Option("--from", help="Take the files from this folder; no download.")] = None,
    mirror: Annotated[
        str | None, typer.Option(help="Another address, with FOLDER/FILE below it; the hashes stay the same.")
    ] = None,
    cache_dir: CacheDir = None,
    as_json: AsJson = False,
) -> None:
    """Download a data set's files into the cache, or copy them from a folder; every file's SHA-256 is checked."""
    chosen = _known(name)
    cache = cache_folder(cache_dir)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    bars = Progress(*columns, console=Terminal(stderr=True))
    tasks: dict[str, TaskID] = {}

    def show(file: str, done: int, total: int) -> None:
        if file not in tasks:
            bars.start()
            tasks[file] = bars.add_task(file, total=total)
        bars.update(tasks[file], completed=done)

    try:
        paths = get_files(chosen, cache, source, mirror, show)
    finally:
        if tasks:
            bars.stop()
    if as_json:
        _print_json({"name": name, "files": [str(path) for path in paths]})
        return
    for path in paths:
        typer.echo(str(path))
    if not paths:
        typer.echo(f"{name} needs no files.")


@app.command()
def describe(
    name: Name,
    *,
    split: Annotated[
        str | None, typer.Option(help="How to divide the rows, such as dirichlet:clients=100,alpha=0.3 or natural.")
    ] = None,
    setting: Annotated[list[str] | None, typer.Option("--set", help="A setting of the loader, KEY=VALUE.")] = None,
    seed: int = 0,
    picture: Annotated[Path | None, typer.Option(help="Draw clients by labels into this HTML file.")] = None,
    data_dir: DataDir = None,
    cache_dir: CacheDir = None,
    as_json: AsJson = False,
) -> None:
    """Print clients, rows per client and label distribution of a division; draw clients by labels."""
    _known(name)
    settings: dict[str, Any] = pairs_of(setting or [], "--set")
    table = load(name, data_dir, cache_dir, **settings)
    data = summary.divided_by_default(table, seed) if split is None else table.split(_split(split), seed=seed)
    found = summary.describe(data)
    if picture is not None:
        found["picture"] = str(summary.picture(data, picture))
    if as_json:
        _print_json({"name": name, **found})
        return
    grid = Grid("", Column(name, overflow="fold"))
    for field, value in found.items():
        text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
        grid.add_row(field, text if len(text) < 600 else text[:600] + " ...")
    console = Terminal()
    console.print(grid)
    if found["labels"]:
        console.print("clients (down) by labels (across):")
        console.print(summary.heat_map(summary.client_by_label(data)))


@app.command()
def verify(
    name: Annotated[str | None, typer.Argument(help="The data set; by default all that are downloaded.")] = None,
    data_dir: DataDir = None,
    cache_dir: CacheDir = None,
    as_json: AsJson = False,
) -> None:
    """Hash every file and every decoded array again; an altered one is an error."""
    cache = cache_folder(cache_dir)
    chosen = [_known(name)] if name else [one for one in DATASETS.values() if present(one, data_dir, cache)]
    for one in chosen:
        if one.ways and not present(one, data_dir, cache):
            raise DataError(missing(one, data_dir, cache))
    lines = [line for one in chosen for line in _verified(one, data_dir, cache)]
    if as_json:
        _print_json(lines)
    else:
        for line in lines:
            typer.echo(f"{line['state']:8} {line['path']}")
        if not lines:
            typer.echo("nothing to verify: no files are here")
    altered = [line for line in lines if line["state"] == "altered"]
    if altered:
        raise DataError(
            f"{altered[0]['path']} must have the SHA-256 {altered[0]['wanted']}. Got {altered[0]['sha256']}."
        )


def _verified(entry: DataSet, data_dir: Path | None, cache: Path) -> list[dict[str, str]]:
    name, lines = entry.name, []
    for file, path in (present(entry, data_dir, cache) or {}).items():
        wanted, found = entry.file(file).sha256, sha256_of(path)
        state = ("ok" if found in wanted else "altered") if wanted else "unpinned"
        lines.append({"name": name, "path": str(path), "state": state, "wanted": " or ".join(wanted), "sha256": found})
    for path, wanted_sum, found in verify_arrays(cache, name):
        state = "ok" if found == wanted_sum else "altered"
        lines.append({"name": name, "path": str(path), "state": state, "wanted": wanted_sum, "sha256": found})
    return lines


def _known(name: str) -> DataSet:
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    return DATASETS[name]


def _split(text: str) -> Any:
    name, _, settings = text.partition(":")
    if name not in SPLITS:
        raise unknown("split", name, SPLITS)
    try:
        return SPLITS[name](**pairs_of(filter(None, settings.split(",")), "--split"))
    except TypeError as error:
        raise ConfigError(f"split {name!r} does not take these settings: {error}.") from None


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=1))
