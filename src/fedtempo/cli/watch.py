"""`fedtempo watch`: the live page of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedtempo.cli.options import AllowCode
from fedtempo.errors import is_count, require
from fedtempo.report.watching import page_server
from fedtempo.support.terminal import say


def watch(
    folder: Annotated[Path, typer.Argument(help="The folder of a run, finished or not.")],
    port: Annotated[int, typer.Option(help="The port to serve on; 0 is any free one.")] = 0,
    allow_code: AllowCode = None,
) -> None:
    """Serve a live page of a run to this machine's browser. It only reads; stopping it does not stop the run."""
    require(is_count(port, 0) and port < 2**16, "port", "an int in [0, 65535]", port)
    with page_server(folder, port, allow_code or ()) as pages:
        say(pages.address)
        say(f"Watching {folder}; open the address in a browser. Ctrl-C ends watching, not the run.", error=True)
        try:
            pages.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            say(error=True)
