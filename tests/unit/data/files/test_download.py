"""Downloads, from a server on this machine that misbehaves in every way we know."""

import hashlib
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from fedtempo.data.files.download import _check_address, fetch
from fedtempo.data.files.published import File
from fedtempo.errors import DataError, OutputError
from tests.programs import Forked
from tests.waiting import PATIENCE, until

CONTENT = np.random.default_rng(0).bytes(300_000)
SUM = hashlib.sha256(CONTENT).hexdigest()
FILE = File("data.bin", (SUM,), len(CONTENT), "set by the tests")


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.seen.append((self.path, self.headers.get("Range")))
        getattr(self, "answer_" + self.path.strip("/").split("/")[0].replace("-", "_"))()

    def send(self, content, status=200, claimed=None, **headers):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content) if claimed is None else claimed))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def answer_ok(self):
        wanted = self.headers.get("Range")
        if wanted and not self.server.no_ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            self.send(CONTENT[start:], 206)
        else:
            self.send(CONTENT)

    def answer_breaks(self):
        """Half of it, then the line goes dead; the second time all is well."""
        if self.server.broken:
            self.answer_ok()
        else:
            self.server.broken = True
            self.send(CONTENT[:150_000], claimed=len(CONTENT))
            self.close_connection = True

    def answer_stalls(self):
        if self.server.broken:
            self.answer_ok()
        else:
            self.server.broken = True
            self.send(CONTENT[:150_000], claimed=len(CONTENT))
            self.wfile.flush()
            self.server.release.wait(30)

    def answer_slow(self):
        self.server.release.wait(0.5)
        self.answer_ok()

    def answer_altered(self):
        self.send(CONTENT[:-1] + bytes([CONTENT[-1] ^ 1]))

    def answer_short(self):
        self.send(CONTENT[:-1])

    def answer_long(self):
        self.send(CONTENT + b"more")

    def answer_html(self):
        self.send(b"<!DOCTYPE html><title>Not here</title>")

    def answer_missing(self):
        self.send(b"nothing", 404)

    def answer_to_file(self):
        self.send(b"", 302, Location="file:///etc/passwd")

    def answer_to_ok(self):
        self.send(b"", 302, Location="/ok/data.bin")


@pytest.fixture
def server():
    one = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    one.seen, one.broken, one.no_ranges, one.release = [], False, False, threading.Event()
    thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    one.url = f"http://127.0.0.1:{one.server_port}"
    yield one
    one.release.set()
    one.shutdown()
    thread.join()
    one.server_close()


def files_in(folder):
    """What is there apart from locks."""
    return sorted(path.name for path in folder.rglob("*") if not path.name.endswith(".lock"))


def test_a_file_with_the_right_sum_arrives(tmp_path, server):
    told = []
    path = fetch(FILE, tmp_path, f"{server.url}/ok/data.bin", lambda *step: told.append(step))
    assert path.read_bytes() == CONTENT
    assert files_in(tmp_path) == ["data.bin"]
    assert told[-1] == ("data.bin", len(CONTENT), len(CONTENT))
    fetch(FILE, tmp_path, f"{server.url}/ok/data.bin")
    assert len(server.seen) == 1


def test_a_redirect_is_followed(tmp_path, server):
    assert fetch(FILE, tmp_path, f"{server.url}/to-ok/data.bin").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("altered", rf"must have the SHA-256 {SUM}\. Got [0-9a-f]{{64}}"),
        ("short", rf"the SHA-256 {SUM}. Got 299999 bytes, SHA-256 [0-9a-f]{{64}}"),
        ("long", r"must have 300000 bytes. Got more"),
        ("html", r"Got 38 bytes, SHA-256 [0-9a-f]{64}: an HTML page"),
        ("missing", r"the server answered 404"),
        ("to-file", r"neither http nor https"),
    ],
)
def test_anything_else_leaves_nothing_behind(tmp_path, server, kind, message):
    with pytest.raises(DataError, match=message):
        fetch(FILE, tmp_path, f"{server.url}/{kind}/data.bin")
    assert files_in(tmp_path) == []


def test_an_altered_file_on_disk_is_fetched_again(tmp_path, server):
    (tmp_path / "data.bin").write_bytes(b"altered")
    assert fetch(FILE, tmp_path, f"{server.url}/ok/data.bin").read_bytes() == CONTENT


def test_a_wrong_download_does_not_touch_the_file_that_is_there(tmp_path, server):
    (tmp_path / "data.bin").write_bytes(b"mine")
    with pytest.raises(DataError):
        fetch(FILE, tmp_path, f"{server.url}/altered/data.bin")
    assert (tmp_path / "data.bin").read_bytes() == b"mine"


@pytest.mark.parametrize("no_ranges", [False, True])
def test_an_interrupted_download_goes_on(tmp_path, server, no_ranges):
    server.no_ranges = no_ranges
    with pytest.raises(DataError, match="Run the command again"):
        fetch(FILE, tmp_path, f"{server.url}/breaks/data.bin")
    assert not (tmp_path / "data.bin").exists()
    assert fetch(FILE, tmp_path, f"{server.url}/breaks/data.bin").read_bytes() == CONTENT
    start = server.seen[1][1]
    assert start is not None
    assert int(start.removeprefix("bytes=").removesuffix("-")) > 0
    assert files_in(tmp_path) == ["data.bin"]


def test_the_rest_of_another_version_is_thrown_away(tmp_path, server):
    incoming = tmp_path / ".data.bin.incoming"
    incoming.mkdir()
    (incoming / "part").write_bytes(b"of an older version" * 100)
    assert fetch(FILE, tmp_path, f"{server.url}/ok/data.bin").read_bytes() == CONTENT
    assert [start for _, start in server.seen] == ["bytes=1900-", None]


def started(folder, url):
    return Forked(lambda: print(fetch(FILE, folder, url)))


def test_two_processes_at_once(tmp_path, server):
    other = started(tmp_path, f"{server.url}/slow/data.bin")
    assert until((tmp_path / ".data.bin.lock").exists)
    here = fetch(FILE, tmp_path, f"{server.url}/slow/data.bin")
    assert other.communicate(timeout=PATIENCE)[0].strip() == str(here) == str(tmp_path / "data.bin")
    assert (tmp_path / "data.bin").read_bytes() == CONTENT
    assert len(server.seen) == 1
    assert files_in(tmp_path) == ["data.bin"]


def test_killed_and_started_again(tmp_path, server):
    process = started(tmp_path, f"{server.url}/stalls/data.bin")
    part = tmp_path / ".data.bin.incoming" / "part"
    assert until(lambda: part.is_file() and part.stat().st_size > 0)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    server.release.set()
    assert fetch(FILE, tmp_path, f"{server.url}/stalls/data.bin").read_bytes() == CONTENT
    assert server.seen[-1][1] is not None
    assert files_in(tmp_path) == ["data.bin"]


def test_addresses():
    with pytest.raises(DataError, match=r"must be http or https\. Got 'file:///etc/passwd'"):
        fetch(FILE, None, "file:///etc/passwd")
    with pytest.raises(DataError, match="must not lead to an unencrypted one"):
        _check_address("http://example.org/x", before="https://example.org/x")


def test_no_server(tmp_path, server):
    with pytest.raises(DataError, match=r"data.bin could not be downloaded from http://127.0.0.1:9/.*no connection"):
        fetch(FILE, tmp_path, "http://127.0.0.1:9/data.bin")


def test_a_folder_that_cannot_be_made(tmp_path, server):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        fetch(FILE, tmp_path / "file" / "below", f"{server.url}/ok/data.bin")
