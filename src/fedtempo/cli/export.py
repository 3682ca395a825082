"""`fedtempo export`: a stored run's model as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedtempo.cli.options import AllowCode
from fedtempo.comparison import stored_result
from fedtempo.config import EXPERIMENT, stored_file, without_places
from fedtempo.errors import OutputError, require
from fedtempo.support.terminal import say
from fedtempo.training.delivery import FORMATS
from fedtempo.training.view import Run


def export_model(
    folder: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    out: Annotated[Path, typer.Option(help="The file to write; without an ending it gets the format's.")],
    format: Annotated[
        str, typer.Option(help="safetensors (tensors), torch or onnx (computation too).")
    ] = "safetensors",
    client: Annotated[int | None, typer.Option(help="The client whose model it is; else the shared one.")] = None,
    which: Annotated[str, typer.Option(help="The round: selected by validation, or last.")] = "selected",
    raw: Annotated[
        bool, typer.Option("--raw", help="torch, onnx: the model takes rows before gaps are filled and numbers scaled.")
    ] = False,
    allow_code: AllowCode = None,
) -> None:
    """Write a stored run's model to a file that is used without FedTempo."""
    require(format in FORMATS, "format", " or ".join(map(repr, FORMATS)), format)
    require(which in ("selected", "last"), "which", "'selected' or 'last'", which)
    Run.of(folder).completed()  # nothing is trained here
    if not (folder / EXPERIMENT).exists():
        raise OutputError(
            f"a run to export must have its {EXPERIMENT}. Got {folder}, which has none: it was run from Python, "
            "where result.save_model writes the model."
        )
    result = stored_result(folder, without_places(stored_file(folder / EXPERIMENT, allow_code or [])))
    written = result.save_model(out, format, client=client, which=which, raw=raw)  # type: ignore[arg-type]
    say(str(written))
