"""Give stored runs the keys of today's code: a key is a hash, so other code that makes it calls for other keys.

    python -m tests.frozen.keys --from COMMIT           every file of docs/results/runs
    python -m tests.frozen.keys --from COMMIT FILE ...  these files, such as one that older code wrote

COMMIT is the code that stored the runs. A run keeps its measurements and gets today's key if its key is the one that
the code of COMMIT gives the same contestant, candidate and seed. Others are listed and stay as they are: they were
stored by other code, or the study has changed since.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests import ROOT

RUNS = ROOT / "docs" / "results" / "runs"
KEYS = """
import inspect, json, sys
from pathlib import Path
from fedtempo.papers import REPRODUCTIONS
from fedtempo.papers.framework import choosing, stored, stored_outcome
from fedtempo.papers.framework.kept import seeded_run
from dataclasses import replace

def key(one, run, seed):
    settled = [one.measure] if "measure" in inspect.signature(seeded_run).parameters else []
    return seeded_run(one.name, *settled, run, seed, Path(".")).key

found = {}
for path in map(Path, sys.argv[1:]):
    content = stored.read_stored_runs(path)
    one = REPRODUCTIONS[content["plan"]["name"]]
    name = content["plan"]["scale"]
    scale = one.scales[name]
    store = stored.StoredRuns(path, choosing.plan_record(one, name, 1))
    keys = [[trial.run.label, trial.value, trial.seed, key(one, trial.run, trial.seed)]
            for trial in choosing.trials(one, scale)]
    chosen = {who: choice.value for who, choice in stored_outcome._choices(store, scale.tuning).items()}
    for seed in sorted({run["seed"] for run in content["runs"] if run["tried"] is None}):
        keys += [[run.label, None, seed, key(one, run, seed)] for run in one.runs(replace(scale, chosen=chosen), seed)]
    found[str(path)] = keys
print(json.dumps(found))
"""
"""Run by both versions of the code: the key of every run that a file may hold."""
Identity = tuple[str, float | None, int]


def keys_by(source: Path, files: list[Path]) -> dict[str, dict[Identity, str]]:
    """The keys that the code below `source` gives, by file and run."""
    environment = {**os.environ, "PYTHONPATH": str(source)}
    program = [sys.executable, "-c", KEYS, *map(str, files)]
    done = subprocess.run(program, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout)
    return {path: {(label, tried, seed): key for label, tried, seed, key in keys} for path, keys in found.items()}


def migrated(content: dict[str, Any], before: dict[Identity, str], now: dict[Identity, str]) -> Iterator[str]:
    """Replace the keys of a file's content. Yields a line for each run that keeps its key."""
    for run in content["runs"]:
        identity = (run["label"], run["tried"], run["seed"])
        if run["key"] == now.get(identity):
            continue
        if run["key"] == before.get(identity) and identity in now:
            run["key"] = now[identity]
        else:
            tried = "" if run["tried"] is None else f", tried {run['tried']:g}"
            yield f"{run['label']}{tried}, seed {run['seed']}: its key is of other code"


def written(content: dict[str, Any]) -> str:
    """As `StoredRuns` writes it."""
    head = json.dumps({name: value for name, value in content.items() if name != "runs"}, indent=1)
    lines = ",\n".join(json.dumps(record, separators=(",", ":")) for record in content["runs"])
    return f'{head.removesuffix("}").rstrip()},\n "runs": [\n{lines}\n]}}\n'


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.frozen.keys", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, default=sorted(RUNS.glob("*.json")))
    parser.add_argument("--from", dest="commit", required=True, help="the commit whose code stored the runs")
    given = parser.parse_args(arguments)
    files = [path.resolve() for path in given.files]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        subprocess.run(["git", "worktree", "add", "--detach", "-q", str(copy), given.commit], cwd=ROOT, check=True)
        try:
            before = keys_by(copy / "src", files)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(copy)], cwd=ROOT, check=True)
    now = keys_by(ROOT / "src", files)
    runs = left = 0
    for path in files:
        content = json.loads(path.read_text(encoding="utf-8"))
        for line in migrated(content, before[str(path)], now[str(path)]):
            print(f"{path.name}: {line}")
            left += 1
        runs += len(content["runs"])
        path.write_text(written(content), encoding="utf-8")
    print(f"{runs - left} of {runs} stored runs in {len(files)} files have the keys of today's code")
    return int(left > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
