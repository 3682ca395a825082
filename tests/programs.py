"""A program in a process of its own that need not load torch again: a fork of the tests' process.

A new interpreter takes about three seconds to load torch and the library. Tests that are not about starting save them.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, NoReturn

from tests.waiting import PATIENCE, until


class Ended(NamedTuple):
    """How a program ended; a signal's number is negative, as in `subprocess`."""

    returncode: int
    stdout: str
    stderr: str


class Forked:
    """`work` in a fork with its own standard streams. Its methods are those of `subprocess.Popen`."""

    def __init__(
        self,
        work: Callable[[], object],
        *,
        output: int | None = None,
        error: int | None = None,
        directory: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        out, err = os.pipe(), os.pipe()
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            streams = (out[1] if output is None else output, err[1] if error is None else error)
            _become(work, streams, directory, environment)
        for end in (out[1], err[1]):
            os.close(end)
        self.stdout, self.stderr = os.fdopen(out[0]), os.fdopen(err[0])

    def poll(self) -> int | None:
        """The exit code, or None while the program runs."""
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def wait(self, timeout: float = PATIENCE) -> int:
        """The exit code, once there is one."""
        if not until(lambda: self.poll() is not None, timeout):
            self.kill()
            raise TimeoutError(f"the program still runs after {timeout} seconds")
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the program has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float = PATIENCE) -> tuple[str, str]:
        """All that is left of both streams, once the program has ended."""
        if self.stdout.closed:
            return "", ""
        read: list[str] = []
        # A program that fills one pipe waits for its reader; so both are read at the same time.
        other = threading.Thread(target=lambda: read.append(self.stderr.read()))
        watch = threading.Timer(timeout, self.kill)
        other.start()
        watch.start()
        with self.stdout, self.stderr:
            text = self.stdout.read()
            other.join()
        self.wait()
        watch.cancel()
        return text, read[0]


def _become(
    work: Callable[[], object],
    streams: tuple[int, int],
    directory: Path | None,
    environment: Mapping[str, str] | None,
) -> NoReturn:
    code = 99
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for stream, number in zip(streams, (1, 2), strict=True):
            os.dup2(stream, number)
        sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        warnings.resetwarnings()
        if environment is not None:
            os.environ.clear()
            os.environ.update(environment)
        if directory is not None:
            os.chdir(directory)
        code = _code_of(work)
        sys.stdout.flush()
    finally:
        os._exit(code)


def _code_of(work: Callable[[], object]) -> int:
    """The exit code that an interpreter would end with."""
    try:
        work()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def fedtempo(
    *arguments: str,
    output: int | None = None,
    error: int | None = None,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Forked:
    """`fedtempo ARGUMENTS`, begun."""

    def work() -> None:
        from fedtempo.cli import main

        sys.argv = ["fedtempo", *arguments]
        main()

    return Forked(work, output=output, error=error, directory=directory, environment=environment)


def fedtempo_ended(*arguments: str, directory: Path | None = None) -> Ended:
    """`fedtempo ARGUMENTS`, from its start to its end."""
    program = fedtempo(*arguments, directory=directory)
    output, error = program.communicate()
    return Ended(program.wait(), output, error)


def script_ended(path: Path, *arguments: str, directory: Path, environment: Mapping[str, str] | None = None) -> Ended:
    """`python PATH ARGUMENTS`, from its start to its end."""

    def work() -> None:
        sys.argv = [str(path), *arguments]
        sys.path.insert(0, str(path.parent))
        runpy.run_path(str(path), run_name="__main__")

    program = Forked(work, directory=directory, environment=environment)
    output, error = program.communicate()
    return Ended(program.wait(), output, error)
