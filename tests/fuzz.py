"""Foreign bytes for every parser: `python -m tests.fuzz --seconds 60 [--only csv]`, and a few in `make test-all`.

A target parses bytes as the program does. It may return or raise one of the library's own errors, which is one line;
anything else is a finding, and so is a parse that takes longer than a few seconds. Hypothesis makes the bytes from a
good example, with pieces that the format knows, and makes a failing example small.
"""

# ruff: noqa: E501 - a target is a line of the table
from __future__ import annotations

import argparse
import gzip
import io
import json
import shutil
import struct
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tomli_w
import torch
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import fedtempo as ft
from fedtempo.config import read
from fedtempo.data.files.archives import read_npz
from fedtempo.data.files.idx import read_idx
from fedtempo.deploy import nodedata, orders, wire
from fedtempo.errors import FedTempoError
from fedtempo.report.stored import read_run
from fedtempo.training.state import tensors_from_bytes, tensors_to_bytes
from fedtempo.training.storage.folders import EXPERIMENT, RoundCount
from fedtempo.training.storage.reader import RunReader
from tests.unit.config.experiments import SMALL

MOST_SECONDS = 5.0
LONGEST = 1000
"""Characters of an error, which is one line."""


class Target(NamedTuple):
    """A parser of bytes in a folder, good examples, and pieces that the format knows."""

    parse: Callable[[bytes, Path], object]
    examples: Callable[[], list[bytes]]
    pieces: tuple[bytes, ...] = ()


def in_file(name: str, parse: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    """A parser of a file of this name."""

    def parsed(content: bytes, folder: Path) -> object:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return parse(path)

    return parsed


@cache
def run_folder() -> dict[str, bytes]:
    """The files of a small finished run."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "run"
        rng = np.random.default_rng(0)
        data = ft.data.FederatedData.from_clients([(rng.random((6, 2)), np.arange(6) % 2) for _ in range(3)], test=0.5)
        model, algorithm = ft.models.mlp(2, [2], 2), ft.algorithms.fedper(lr=0.1, steps=1)
        result = ft.run(model=model, data=data, algorithm=algorithm, rounds=2, out=out, progress=False)
        result.save(out / "saved")
        (out / "experiment.toml").write_text(tomli_w.dumps(SMALL))
        return {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}


def of_run(name: str) -> Callable[[bytes, Path], object]:
    """A run folder of which this file is another one."""

    def parsed(content: bytes, folder: Path) -> object:
        # The pictures of a page take the data of the experiment file: they are made where that file is what changes.
        kept = {other: old for other, old in run_folder().items() if other != EXPERIMENT}
        for other, old in {**kept, name: content}.items():
            (folder / other).write_bytes(old)
        reader = RunReader(folder)
        reader.refresh()
        RoundCount(folder, reader._seal).read()
        return read_run(folder)

    return parsed


def npz(**arrays: np.ndarray) -> bytes:
    """An npz file of these arrays."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def idx() -> bytes:
    """A gzipped idx file of two small images."""
    return gzip.compress(struct.pack(">HBBIII", 0, 8, 3, 2, 2, 2) + bytes(8))


def leaf(content: bytes, folder: Path) -> object:
    """A LEAF folder whose training file has these bytes."""
    (folder / "train").mkdir(exist_ok=True)
    (folder / "test").mkdir(exist_ok=True)
    (folder / "train" / "all.json").write_bytes(content)
    return ft.data.from_leaf(folder)


def messages() -> list[bytes]:
    """One message of every kind that a deployment sends."""
    tasks = [orders.NodeTask(3, wire.NOTHING_KEPT)]
    values = torch.zeros((2, 1, 2), dtype=torch.float64)
    return [
        orders.tasks_to_bytes(tasks),
        orders.scores_to_bytes(3, 1, values),
        orders.settled_to_bytes(3),
        orders.failure_to_bytes("it fell"),
    ]


def message(content: bytes, folder: Path) -> None:
    """Each reader of messages is given the bytes."""
    for reader in (
        orders.tasks_from_bytes,
        lambda data: orders.scores_from_bytes(data, 1, 2),
        orders.settled_from_bytes,
        orders.failure_from_bytes,
    ):
        try:
            reader(content)
        except FedTempoError:
            continue


X, Y = np.ones((4, 2), dtype=np.float32), np.array([0, 1, 0, 1])
USERS = {
    "users": ["a", "b"],
    "user_data": {name: {"x": [[1.0, 2.0]], "y": [1]} for name in "ab"},
    "num_samples": [1, 1],
}
TOML = (
    b"[",
    b"]",
    b"=",
    b"{",
    b"}",
    b'"',
    b"\n",
    b"1e999",
    b"nan",
    b"-1",
    b"mine:x",
    b"os:system",
    b"'",
    b".",
    b"1979-05-27",
)
JSON = (b"{", b"}", b"[", b"]", b'"', b":", b",", b"NaN", b"1e999", b"null", b"\\ud800", b"-0", b"9" * 400)
TARGETS: dict[str, Target] = {
    "experiment file": Target(in_file("x.toml", read), lambda: [tomli_w.dumps(SMALL).encode()], TOML),
    "run database": Target(of_run("run.sqlite"), lambda: [run_folder()["run.sqlite"]], (b"\xff", b"CREATE ", b"SELECT ")),
    "run summary": Target(of_run("summary.json"), lambda: [run_folder()["summary.json"]], JSON),
    "run experiment": Target(of_run("experiment.toml"), lambda: [run_folder()["experiment.toml"]], TOML),
    "run count": Target(of_run("run.count"), lambda: [run_folder()["run.count"]], (b"9" * 50,)),
    "saved result": Target(in_file("saved", ft.load_result), lambda: [run_folder()["saved"]], JSON),
    "tensors": Target(lambda data, _: tensors_from_bytes(data), lambda: [tensors_to_bytes({"w": torch.zeros(3)})], JSON),
    "message": Target(message, messages, (b"\x00" * 8, b"\xff" * 8)),
    "npz": Target(in_file("x.npz", lambda path: read_npz(path, {"x": "iuf"})), lambda: [npz(x=X)], (b"PK\x01\x02", b"'descr'")),
    "node folder": Target(in_file("d/0.npz", lambda path: nodedata.from_folder(path.parent)), lambda: [npz(x=X, y=Y)], (b"PK",)),
    "idx": Target(lambda data, _: read_idx(data, "x", 3), lambda: [idx()], (b"\xff" * 4, b"\x1f\x8b")),
    "idx inside": Target(lambda data, _: read_idx(gzip.compress(data), "x", 3), lambda: [gzip.decompress(idx())], (b"\xff" * 4,)),
    "leaf": Target(leaf, lambda: [json.dumps(USERS).encode()], JSON),
    "csv": Target(
        in_file("x.csv", lambda path: ft.data.from_csv(path, client="c", target="y", strings="codes", missing="zero")),
        lambda: [b"c,x,y\na,1,0\nb,2,1\na,3,1\n"],
        (b",", b"\n", b'"', b"NA", b"1e999", b"inf", b"-", b"\xef\xbb\xbf", b"\r", b";", b"\x00", b"9" * 400),
    ),
}  # fmt: skip


def foreign(target: Target) -> st.SearchStrategy[bytes]:
    """A good example with some places changed, or bytes of pieces alone."""
    piece = st.binary(max_size=8)
    if target.pieces:
        piece = st.one_of(piece, st.sampled_from(target.pieces))
    edit = st.tuples(st.floats(0, 1), st.integers(0, 40), piece)
    changed = st.builds(_changed, st.sampled_from(target.examples()), st.lists(edit, max_size=6))
    return st.one_of(changed, st.lists(piece, max_size=12).map(b"".join))


def _changed(example: bytes, edits: list[tuple[float, int, bytes]]) -> bytes:
    for place, gone, piece in edits:
        at = int(place * len(example))
        example = example[:at] + piece + example[at + gone :]
    return example


def tried(target: Target, content: bytes) -> None:
    """Parse the bytes; anything but a result or one of our own short lines is an error."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    began = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.parse(content, folder)
    except FedTempoError as error:
        # A path of the machine in a line is its caller's own.
        assert "\n" not in str(error).replace(str(folder), "") and len(str(error)) < LONGEST + len(str(folder)), str(
            error
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert time.process_time() - began < MOST_SECONDS, "it took too long"


def check(name: str, examples: int, first: int = 0) -> None:
    """So many examples for a target, the same for the same seed."""
    target = TARGETS[name]
    rules = settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))

    @seed(first)
    @rules
    @given(foreign(target))
    def attack(content: bytes) -> None:
        tried(target, content)

    attack()


def main() -> None:
    """Fuzz every target, or one, for so long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", choices=TARGETS)
    given_ = parser.parse_args()
    failed = False
    for name in [given_.only] if given_.only else TARGETS:
        began, round_ = time.monotonic(), 0
        while time.monotonic() < began + given_.seconds:
            try:
                check(name, 200, round_)
            except Exception as error:
                print(
                    f"{name}: {type(error).__name__}: {error}", *getattr(error, "__notes__", ()), sep="\n  ", flush=True
                )
                failed = True
                break
            round_ += 1
        print(f"{name}: {200 * round_} examples in {time.monotonic() - began:.0f} s", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
