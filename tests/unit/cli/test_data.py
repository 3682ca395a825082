"""`fedtempo data` from the command line, offline."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedtempo.cli.data import app
from fedtempo.data import summary
from fedtempo.data.files.published import File
from fedtempo.data.load import DATASETS
from fedtempo.errors import ConfigError, DataError
from tests import tiny_files as tiny


@pytest.fixture
def run(elsewhere):
    def call(*arguments, fails=None):
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        if fails is None:
            assert result.exit_code == 0, result.output
            return result.output
        assert isinstance(result.exception, fails), result.exception
        return str(result.exception)

    return call


@pytest.fixture
def published(tmp_path, monkeypatch):
    """Tiny MNIST files, made the published ones by pinning their sums."""
    from dataclasses import replace

    from fedtempo.data.files.folders import sha256_of

    tiny.mnist(tmp_path / "source")
    entry = DATASETS["mnist"]
    paths = {file.name: tmp_path / "source/mnist" / file.name for file in entry.files}
    files = tuple(File(n, (sha256_of(p),), p.stat().st_size, "http://127.0.0.1:9/x") for n, p in paths.items())
    monkeypatch.setitem(DATASETS, "mnist", replace(entry, files=files))
    return tmp_path / "source"


def test_every_data_set_is_in_the_catalogue():
    for name, entry in DATASETS.items():
        assert entry.licence and entry.citation and entry.clients and entry.about and entry.page, name
        for file in entry.files:
            assert all(len(s) == 64 for s in file.sha256), file.name
            assert file.size > 0 or not file.url


def test_every_data_set_is_in_the_documentation():
    page = (Path(__file__).parents[3] / "docs" / "api" / "data.md").read_text()
    assert not [name for name in DATASETS if f"`{name}`" not in page]


@pytest.mark.parametrize("name", ["cifar100", "sentiment140"])
def test_a_division_is_described(tiny_load, tmp_path, name):
    getattr(tiny, name)(tmp_path)
    found = summary.describe(summary.divided_by_default(tiny_load(name), 0))
    assert found["clients"] > 1 and found["labels"]


def test_list(run):
    lines = json.loads(run("list", "--json"))
    assert set(lines) == set(DATASETS)
    assert lines["digits"]["here"]
    assert not lines["mnist"]["here"]
    assert lines["mnist"]["download_bytes"] == 12_584_546
    text = run("list")
    assert "539 in train" in text
    assert "not here; 12.6 MB to download" in text
    assert "always here" in text


def test_get_from_a_folder_then_load_verify_and_describe(run, published, elsewhere, tmp_path):
    paths = json.loads(run("get", "mnist", "--from", published, "--json"))["files"]
    assert len(paths) == 6
    assert all(str(elsewhere) in path for path in paths)
    found = json.loads(run("describe", "mnist", "--json", "--picture", tmp_path / "picture.html"))
    assert found["clients"] == 6
    assert found["rows"] == {"train": 48, "validation": 0, "test": 12}
    assert found["labels"] == [6] * 10
    assert len(found["digest"]) == 64
    page = (tmp_path / "picture.html").read_text(encoding="utf-8")
    assert 'aria-label="rows by client (across, 6) and label (down, 10)"' in page
    assert "<script" not in page and "http" not in page
    states = [line["state"] for line in json.loads(run("verify", "mnist", "--json"))]
    assert states == ["ok"] * (6 + 4)
    assert "ok" in run("verify")


def test_verify_finds_an_altered_file_and_an_altered_array(run, published, elsewhere):
    run("get", "mnist", "--from", published)
    run("describe", "mnist")
    array = next(elsewhere.rglob("y.npy"))
    good = array.read_bytes()
    state = array.stat()
    array.write_bytes(good[:-1] + b"\7")
    import os

    os.utime(array, ns=(state.st_atime_ns, state.st_mtime_ns))  # an alteration that keeps size and time
    assert "y.npy must have the SHA-256" in run("verify", "mnist", fails=DataError)
    array.write_bytes(good)
    file = elsewhere / "files/mnist/t10k-labels-idx1-ubyte.gz"
    file.write_bytes(file.read_bytes()[:-1] + b"\7")
    assert "t10k-labels-idx1-ubyte.gz must have the SHA-256" in run("verify", "mnist", "--json", fails=DataError)


def test_get_takes_leafs_folders(run, tmp_path, elsewhere):
    tiny.femnist_json(tmp_path / "leaf")
    run("get", "femnist", "--from", tmp_path / "leaf/femnist")
    assert len(list((elsewhere / "files/femnist").glob("*/*.json"))) == 4
    assert json.loads(run("describe", "femnist", "--json"))["clients"] == 2
    assert [line["state"] for line in json.loads(run("verify", "femnist", "--json"))][:4] == ["unpinned"] * 4


def test_get_refuses_altered_files_from_a_folder(run, published, elsewhere):
    path = published / "mnist/train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes() + b"x")
    assert "must have the SHA-256" in run("get", "mnist", "--from", published, fails=DataError)
    assert not (elsewhere / "files/mnist/train-images-idx3-ubyte.gz").exists()


def test_get_from_a_mirror(run, published, elsewhere):
    import functools
    import threading
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(published)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        output = run("get", "mnist", "--mirror", f"http://127.0.0.1:{server.server_port}/", "--json")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert len(list((elsewhere / "files/mnist").glob("*.gz"))) == 6
    assert '"files"' in output


def test_what_cannot_be_done_is_said_in_one_line(run, tmp_path):
    for arguments, kind, words in [
        (("get", "mnist", "--from", tmp_path), DataError, "not all of it is in"),
        (
            ("get", "femnist"),
            DataError,
            "cannot be downloaded as files. Get train/*.json + test/*.json or femnist_leaf_sample.npz",
        ),
        (("get", "mnits"), ConfigError, "Did you mean 'mnist'"),
        (("describe", "mnist"), DataError, "needs train-images-idx3-ubyte.gz"),
        (("verify", "mnist"), DataError, "needs train-images-idx3-ubyte.gz"),
        (("describe", "digits", "--split", "dirichlett"), ConfigError, "Did you mean 'dirichlet'"),
        (("describe", "digits", "--split", "iid:client=3"), ConfigError, "does not take these settings"),
        (("describe", "digits", "--set", "oops"), ConfigError, "--set must be written KEY=VALUE"),
        (("describe", "quadratic", "--split", "iid:clients=0"), ConfigError, "clients must be an int >= 1"),
    ]:
        message = run(*arguments, fails=kind)
        assert words in message, message
        assert "\n" not in message


def test_no_connection_is_one_line(run, published, elsewhere):
    message = run("get", "mnist", fails=DataError)
    assert "train-images-idx3-ubyte.gz could not be downloaded from http://127.0.0.1:9/x (no connection)" in message
    assert str(elsewhere / "files/mnist") in message


def test_describe_draws_in_the_terminal(run):
    text = run("describe", "digits", "--split", "classes_per_client:clients=5,classes=2")
    assert "clients (down) by labels (across):" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 5
    assert all(sum(mark != " " for mark in row.strip("|")) == 2 for row in rows)
    assert "one number" not in run("describe", "quadratic", "--set", "clients=30")
    assert run("get", "digits").strip() == "digits needs no files."
