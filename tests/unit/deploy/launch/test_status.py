"""What an operator sees; a folder of somebody else's is read within bounds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fedtempo as ft
from fedtempo.deploy.launch.process import only_server
from fedtempo.deploy.launch.status import PRESENT, Seen, lines_of, status_of, write_present
from fedtempo.deploy.membership.declared import DECLARED


def test_who_is_there_is_only_there_while_a_server_runs(tmp_path: Path) -> None:
    write_present(tmp_path, {"node 1": Seen(True, 1e9, 2_000_000), "node 10": Seen(False, 1e9, 0)})
    with only_server(tmp_path):
        status = status_of(tmp_path)
    assert status.served and [(node.name, node.here) for node in status.nodes] == [("node 1", True), ("node 10", False)]
    assert not any(node.here for node in status_of(tmp_path).nodes)
    first, one, _ = lines_of(status)
    assert first == "0 rounds; a server runs"
    assert one.startswith("node 1: here, last seen ") and one.endswith(
        "0 clients, 0 rounds, 0 failures, 2.0 MB received"
    )


@pytest.mark.parametrize("name", [PRESENT, DECLARED])
@pytest.mark.parametrize("content", ["", "[]", '{"node 1": 7}', '{"node 1": [true, "x", 1]}', "[" * 100_000, None])
def test_a_spoiled_record_is_one_line(name: str, content: str | None, tmp_path: Path) -> None:
    if content is None:
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).write_text(content)
    with pytest.raises(ft.OutputError, match=f"{name} must say") as error:
        status_of(tmp_path)
    assert "\n" not in str(error.value)


def test_a_folder_without_nodes_is_empty(tmp_path: Path) -> None:
    assert status_of(tmp_path) == (False, 0, None, [])
