"""The live page: a run trains, the page shows its rounds; it is for this machine only, and reading leaves no trace."""

from __future__ import annotations

import http.client
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest

import fedtempo as ft
from fedtempo.config import read, settings_of, write_experiment
from fedtempo.errors import OutputError, StoreError
from fedtempo.report.watching import page_server
from fedtempo.training.run import train
from tests import ROOT
from tests.e2e.browser.conftest import Browser
from tests.programs import fedtempo, fedtempo_ended
from tests.waiting import PATIENCE

EXAMPLE = ROOT / "examples" / "feddecay.toml"


def training(folder: Path, rounds: int) -> Any:
    file = read(EXAMPLE, [f"rounds={rounds}", "evaluation.every=1", "cohort=4"])
    generator = train(**settings_of(file), out=folder)
    write_experiment(folder, file)
    return generator


class Page(NamedTuple):
    port: int
    token: str

    @classmethod
    def at(cls, address: str) -> Page:
        url = urlsplit(address)
        return cls(int(url.port or 0), parse_qs(url.query)["token"][0])


@contextmanager
def served(folder: Path) -> Iterator[Page]:
    with page_server(folder) as pages:
        thread = threading.Thread(target=pages.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield Page(pages.server_address[1], pages.token)
        finally:
            pages.shutdown()
            thread.join()


def ask(page: Page, path: str = "/", host: str | None = None, cookie: str | None = None) -> tuple[int, str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=PATIENCE)
    cookie = f"fedtempo-{page.port}={page.token}" if cookie is None else cookie
    try:
        connection.request("GET", path, headers={"Cookie": cookie, **({"Host": host} if host else {})})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    finally:
        connection.close()


def test_a_new_round_appears_and_the_end_is_told(browser: Browser, tmp_path: Path) -> None:
    rounds = training(tmp_path / "run", 5)
    next(rounds)
    next(rounds)
    with served(tmp_path / "run") as page:
        browser.look(1280)
        browser.hurry(20)
        browser.open(f"http://127.0.0.1:{page.port}/?token={page.token}")
        told = lambda: browser.one("#live").text  # noqa: E731
        browser.until(lambda: "Round 2 of 5" in told())
        browser.until(lambda: browser.all("#data svg.chart"))
        next(rounds)
        browser.until(lambda: "Round 3 of 5" in told())
        browser.until(lambda: "at 3" in browser.one("#curves svg.chart").get_attribute("aria-label"))
        browser.until(lambda: browser.click("#cost [data-value=steps]") or True)
        with pytest.raises(StopIteration) as stop:
            while True:
                next(rounds)
        result = stop.value.value
        result.export(tmp_path / "run")
        browser.until(lambda: "Finished: all 5 rounds" in told())
        browser.until(lambda: result.digest() in browser.one("#what").text)
        assert browser.errors() == []
        assert all(url.startswith(f"http://127.0.0.1:{page.port}/") for url in browser.requests())


def test_watching_a_finished_run_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ft.run(**settings_of(read(EXAMPLE, ["rounds=2", "cohort=3"])), out=folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with served(folder) as at:
        status, text, headers = ask(at)
        assert (status, headers["X-Frame-Options"]) == (200, "DENY")
        assert "feddecay" in text
        assert ask(at, "/data.json?known=x")[1].count('"done":2') == 1
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_only_this_machine_and_only_two_addresses(tmp_path: Path) -> None:
    rounds = training(tmp_path / "run", 2)
    next(rounds)
    rounds.close()
    with served(tmp_path / "run") as page:
        assert ask(page, host=f"localhost:{page.port}")[0] == 200
        assert ask(page, host="evil.example")[0] == 403
        assert ask(page, host=f"evil.example:{page.port}")[0] == 403
        assert ask(page, "/../experiment.toml")[0] == 404
        assert ask(page, "/run.sqlite")[0] == 404
        with pytest.raises(OutputError, match=f"port must be a free port of this machine. Got {page.port}"):
            page_server(tmp_path / "run", page.port)


def test_without_the_token_nothing_is_shown(tmp_path: Path) -> None:
    """Other users of the machine reach the port; the folder is closed to them."""
    rounds = training(tmp_path / "run", 2)
    next(rounds)
    rounds.close()
    with served(tmp_path / "run") as page:
        other = page.token[:-1] + ("A" if page.token[-1] != "A" else "B")
        for path in (
            "/",
            "/data.json",
            "/data.json?known=",
            f"/?token={other}",
            "/?token=",
            "/?token=%ff",
            "/experiment.toml",
        ):
            for cookie in ("", f"fedtempo-{page.port}={other}", f"fedtempo-1={page.token}", "a=b; =;;\x1f"):
                status, text, _ = ask(page, path, cookie=cookie)
                assert (status, "feddecay" in text) == (403, False), (path, cookie)
        status, text, headers = ask(page, f"/?token={page.token}", cookie="")
        assert (status, headers["Location"], text) == (303, "/", "")
        cookie, *rules = headers["Set-Cookie"].split("; ")
        assert set(rules) == {"Path=/", "HttpOnly", "SameSite=Lax"}
        assert ask(page, "/", cookie=cookie)[0] == 200
        assert ask(page, f"/data.json?token={page.token}", cookie="")[0] == 200


def test_a_folder_without_a_run_and_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"a run folder must hold run\.sqlite"):
        page_server(tmp_path)
    (tmp_path / "run.sqlite").write_bytes(b"not a database at all, whatever its name says" * 100)
    with pytest.raises(StoreError, match="cannot be read"):
        page_server(tmp_path)


def test_the_command_prints_the_address_and_ends_on_ctrl_c(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ft.run(**settings_of(read(EXAMPLE, ["rounds=1", "cohort=3"])), out=folder)
    process = fedtempo("watch", str(folder))
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:")
        assert ask(Page.at(address))[0] == 200
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0
    assert "Ctrl-C ends watching" in error
    wrong = fedtempo_ended("watch", str(tmp_path))
    assert wrong.returncode == 6
    assert wrong.stderr == f"fedtempo: a run folder must hold run.sqlite. Got {tmp_path}, which does not.\n"
