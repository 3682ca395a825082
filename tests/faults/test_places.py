"""No stored byte chooses a place: resuming a folder writes into that folder, and elsewhere only if told so then."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from fedtempo.cli import runs
from fedtempo.cli.main import app
from fedtempo.config import places_outside, read, without_places
from fedtempo.errors import ConfigError, OutputError, StoreError
from fedtempo.report.stored import read_run
from tests.programs import fedtempo_ended

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "feddecay.toml"
SMALL = ["--set", "rounds=3", "--set", "evaluation.every=3", "--set", "backend=serial", "--quiet"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    app(["run", str(EXAMPLE), *SMALL, "--out", str(folder)], standalone_mode=False)
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "received"
    subprocess.run(["cp", "-r", str(finished), str(copy)], check=True)
    return copy


def name_in_file(folder: Path, text: str) -> None:
    """Somebody wrote a setting into the folder's experiment file."""
    path = folder / "experiment.toml"
    lines = [line for line in path.read_text().splitlines() if not line.startswith("trackers")]
    path.write_text("\n".join([text, *lines]) if not text.startswith("data.") else spliced(lines, text))


def spliced(lines: list[str], text: str) -> str:
    place = lines.index("[data]") + 1
    return "\n".join([*lines[:place], text.removeprefix("data."), *lines[place:]])


PLACES = {
    "jsonl": 'trackers = [{{name = "jsonl", path = "{place}"}}]',
    "csv": 'trackers = ["jsonl", {{name = "csv", path = "{place}"}}]',
    "tensorboard": 'trackers = [{{name = "tensorboard", path = "{place}"}}]',
    "wandb": 'trackers = [{{name = "wandb", path = "{place}"}}]',
    "mlflow": 'trackers = [{{name = "mlflow", uri = "sqlite:///{place}"}}]',
    "up and out": 'trackers = [{{name = "jsonl", path = "{folder}/../diary"}}]',
    "a cache": 'data.cache_dir = "{place}"',
}


@pytest.mark.parametrize("kind", PLACES)
def test_a_place_outside_the_folder_is_refused_and_left_alone(kind: str, folder: Path, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    diary.write_text("mine\n")
    name_in_file(folder, PLACES[kind].format(place=diary, folder=folder))
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(ConfigError, match=r"must be inside the run folder.*--allow"):
        runs.resume(folder, quiet=True)
    assert diary.read_text() == "mine\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_store_that_the_environment_names_is_outside_as_well(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name_in_file(folder, 'trackers = ["mlflow"]')
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9/")
    with pytest.raises(ConfigError, match="--allow"):
        runs.resume(folder, quiet=True)


def test_a_cluster_elsewhere_is_refused(folder: Path) -> None:
    name_in_file(folder, 'ray_address = "ray://127.0.0.1:9"')
    with pytest.raises(ConfigError, match=r"ray_address.*--allow"):
        runs.resume(folder, quiet=True)


def test_a_place_that_is_named_on_this_command_line_is_written(folder: Path, tmp_path: Path) -> None:
    name_in_file(folder, f'trackers = [{{name = "jsonl", path = "{tmp_path / "diary"}"}}]')
    runs.resume(folder, allow=[str(tmp_path / "diary")], quiet=True)
    assert len((tmp_path / "diary").read_text().splitlines()) == 3


def test_trackers_inside_the_folder_need_no_word(folder: Path) -> None:
    name_in_file(folder, f'trackers = ["csv", {{name = "jsonl", path = "{folder / "log"}"}}]')
    runs.resume(folder, quiet=True)
    assert len((folder / "log").read_text().splitlines()) == 3


def test_watching_and_comparing_write_nowhere(folder: Path, tmp_path: Path) -> None:
    name_in_file(folder, f'data.cache_dir = "{tmp_path / "diary"}"')
    name_in_file(
        folder, f'ray_address = "ray://127.0.0.1:9"\ntrackers = [{{name = "jsonl", path = "{tmp_path}/diary"}}]'
    )
    file = without_places(read(folder / "experiment.toml"))
    assert list(places_outside(file, folder)) == []
    assert file.data.name == "digits"
    assert read_run(folder).picture is not None
    assert not (tmp_path / "diary").exists()


LINKED = ["run.lock", "run.count", "run.sqlite-wal", "run.sqlite-shm", "rounds.jsonl", "metrics.jsonl", "report.html"]


@pytest.mark.parametrize("name", [*LINKED, "metrics.jsonl.partial", "tensorboard", "wandb-run.json"])
def test_a_link_out_of_the_folder_is_refused_and_left_alone(name: str, folder: Path, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    diary.write_text("mine\n")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(diary)
    name_in_file(folder, 'trackers = ["jsonl"]')
    with pytest.raises(OutputError, match="a link to"):
        runs.resume(folder, quiet=True)
    assert diary.read_text() == "mine\n"


def test_a_link_deeper_in_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "tensorboard").mkdir()
    (folder / "tensorboard" / "more").symlink_to(tmp_path)
    with pytest.raises(OutputError, match="a link to"):
        runs.resume(folder, quiet=True)


def test_a_database_with_a_second_name_is_refused(folder: Path, tmp_path: Path) -> None:
    """A backup by hard links would change with the run."""
    os.link(folder / "run.sqlite", tmp_path / "backup")
    before = (tmp_path / "backup").read_bytes()
    with pytest.raises(OutputError, match="hard link"):
        runs.resume(folder, quiet=True)
    assert (tmp_path / "backup").read_bytes() == before


def test_a_pipe_holds_nobody_up(folder: Path) -> None:
    os.mkfifo(folder / "rounds.jsonl")
    with pytest.raises(OutputError, match="a device or a pipe"):
        runs.resume(folder, quiet=True)


def test_other_peoples_links_beside_a_run_do_not_matter(folder: Path, tmp_path: Path) -> None:
    (folder / "data").symlink_to(tmp_path)
    (folder / "metrics-of-all.jsonl").write_text("")
    runs.resume(folder, quiet=True)


def test_a_rollback_journal_is_not_obeyed(folder: Path, tmp_path: Path) -> None:
    """A journal may name another file, and SQLite deletes that one when it has rolled back."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"no-such-journal\0")
    name = str(victim).encode()
    header = bytes.fromhex("d9d505f920a163d7") + (0).to_bytes(4, "big") + b"\0\0\0\1" + (1).to_bytes(4, "big")
    header += (512).to_bytes(4, "big") + (16384).to_bytes(4, "big")
    check = sum(name).to_bytes(4, "big")
    locking = (0x40000000 // 16384 + 1).to_bytes(4, "big")
    record = locking + name + len(name).to_bytes(4, "big") + check + bytes.fromhex("d9d505f920a163d7")
    (folder / "run.sqlite-journal").write_bytes(header.ljust(512, b"\0") + record)
    with pytest.raises(StoreError, match="damaged"):
        runs.resume(folder, quiet=True)
    assert victim.exists()


def test_the_program_says_it_in_one_line(folder: Path, tmp_path: Path) -> None:
    name_in_file(folder, f'trackers = [{{name = "jsonl", path = "{tmp_path / "diary"}"}}]')
    refused = fedtempo_ended("resume", str(folder))
    assert refused.returncode == 3
    assert len(refused.stderr.splitlines()) == 1
    assert fedtempo_ended("resume", str(folder), "--allow", str(tmp_path / "diary")).returncode == 0
