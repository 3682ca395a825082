"""The static look sees what it is for, and what is meant is still done."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import look


def test_nothing_starts_programs_listens_or_writes_that_is_not_meant() -> None:
    assert look.wrong() == []


SEEN = {
    "import subprocess\nsubprocess.run(['ls'])": "starts programs",
    "import os\nos.system('ls')": "starts programs",
    "context.Process(target=f).start()": "starts programs",
    "import socket\nsocket.socket().bind(('', 1))": "listens",
    "from http.server import HTTPServer\nHTTPServer(('', 1), H)": "listens",
    "open('x', 'w')": "writes",
    "path.open(mode='ab')": "writes",
    "path.write_text('x')": "writes",
    "import shutil\nshutil.rmtree(path)": "writes",
    "import os\nos.open(path, os.O_WRONLY)": "writes",
    "np.savez(path, x=x)": "writes",
}


@pytest.mark.parametrize("code", SEEN)
def test_it_is_seen(code: str, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(code)
    assert {kind for kind, _, _ in look.found_in(tmp_path / "x.py")} == {SEEN[code]}


@pytest.mark.parametrize(
    "code",
    [
        "open('x')",
        "path.open('rb')",
        "os.open(path, os.O_RDONLY)",
        "inspect.signature(f).bind(1)",
        "Server(step)",
        "text.replace('a', 'w')",
    ],
)
def test_what_only_looks_is_let_be(code: str, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(code)
    assert list(look.found_in(tmp_path / "x.py")) == []
