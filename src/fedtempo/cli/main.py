"""`fedtempo`: the commands put together, and errors turned into one line and an exit code."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import traceback
import warnings
from typing import Annotated, TextIO

import typer

from fedtempo import __version__
from fedtempo.cli.commands import add_commands
from fedtempo.errors import FedTempoError, OutputError, WorkersLostError
from fedtempo.support.terminal import no_colours, say

INTERRUPTED = 130
USAGE = 2
UNEXPECTED = 70
# typer is built on click, of which newer releases have a copy of their own: the class is found by way of typer's.
COMMAND_LINE_ERROR: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)

app = typer.Typer(
    name="fedtempo",
    help="Federated learning with control over what clients do between two aggregations.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        say(__version__)
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Federated learning with control over what clients do between two aggregations."""


add_commands(app)


def main() -> None:
    """Run a command; an error is one line on standard error, with its own exit code."""
    debug = "--debug" in sys.argv
    arguments = [a for a in sys.argv[1:] if a != "--debug"]
    if "--json" in arguments:
        _keep_output_for_json()
    try:
        if no_colours():
            from typer import rich_utils  # help pages are typer's, and bold without colours

            rich_utils.COLOR_SYSTEM = None
        warnings.showwarning = _show_warning
        code = app(args=arguments, standalone_mode=False)
    except typer.Abort:
        _fail("interrupted", INTERRUPTED, debug)
    except COMMAND_LINE_ERROR as error:
        _fail(_usage(error), USAGE, debug)
    except FedTempoError as error:
        with contextlib.ExitStack() as last:
            if isinstance(error, WorkersLostError):
                # What is left of a cluster that is gone would hold the program up when it ends, and change its code.
                last.callback(os._exit, error.exit_code)
            _fail(str(error), error.exit_code, debug)
    except KeyboardInterrupt:
        _fail("interrupted", INTERRUPTED, debug)
    except BrokenPipeError:
        sys.exit(0)
    except (OSError, MemoryError) as error:  # too many open files, a name too long, no memory: none of it a bug of ours
        _fail(f"the system refused: {str(error) or 'not enough memory'}", OutputError.exit_code, debug)
    except Exception as error:  # a bug of ours: still one line, and how to see more
        _fail(
            f"unexpected {type(error).__name__}: {error} (run again with --debug for the traceback)", UNEXPECTED, debug
        )
    if code == INTERRUPTED:  # typer turns Ctrl-C into this code, without a word
        _fail("interrupted", INTERRUPTED, debug=False)
    sys.exit(code or 0)


def _keep_output_for_json() -> None:
    """Standard output gets the JSON alone: what libraries and their processes print there goes to standard error."""
    try:
        if sys.stdout.fileno() != 1:
            return
    except (OSError, ValueError, AttributeError):  # a stream without a file, as in a notebook
        return
    sys.stdout.flush()
    sys.stdout = os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)
    os.dup2(2, 1)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Warnings name paths and other people's words as well."""
    say(warnings.formatwarning(message, category, filename, lineno).rstrip("\n"), error=True)


def _fail(message: str, code: int, debug: bool) -> None:
    if debug:
        say(traceback.format_exc(), error=True)
    say(f"fedtempo: {' '.join(message.split())}", error=True)
    sys.exit(code)


def _usage(error: Exception) -> str:
    """A wrong option or argument, as one sentence."""
    describe = getattr(error, "format_message", None)
    message = str(describe() if callable(describe) else error).strip() or "a command must be given"
    message = re.sub(r"(Did you mean [^?]*\?)(\s+\1)+", r"\1", message)  # typer suggests, and so does click below it
    end = "" if message.endswith(("?", ".")) else "."
    return f"{message}{end} See 'fedtempo --help'."
