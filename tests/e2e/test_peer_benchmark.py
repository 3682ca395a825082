import json
import os
import signal
import sys
from functools import partial

import pytest
from benchmarks.measure import tree
from benchmarks.peers import table
from benchmarks.peers.__main__ import compare
from benchmarks.peers.contender import Contender, PeerFailedError
from benchmarks.peers.environments import Peer, installed
from benchmarks.workloads import Workload, softmax

pytestmark = pytest.mark.slow("times other libraries' loops; the library itself does not need it")
TINY = Workload("tiny", softmax, (60,), 10, clients=8, samples=25, cohort=4, batch=10, steps=4)
RUNNER = """
import sys
from pathlib import Path
import numpy as np
from benchmarks.handwritten import Client, cohort
from benchmarks.peers.plan import opened
from benchmarks.peers.turns import serve
from benchmarks.workloads import Workload, softmax

TINY = Workload("tiny", softmax, (60,), 10, clients=8, samples=25, cohort=4, batch=10, steps=4)

def runner(turns):
    client = Client(TINY, *opened(TINY, Path(sys.argv[1])))
    shared = [p.detach().clone() for p in client.parameters]
    turns.ready("a loop", "torch")
    print("what frameworks print must not reach the driver")
    number = 0
    while turns.begin(lambda: [w.numpy() for w in shared]):
        chosen = cohort(TINY, number)
        shared = [t / len(chosen) for t in client.train(shared, chosen, number + int(sys.argv[2]))]
        turns.done(chosen)
        number += 1
        if number == int(sys.argv[3]):
            raise RuntimeError("no more")

serve(runner)
"""


def runs(folder, seed, fails_after):
    return [sys.executable, "-c", RUNNER, str(folder), str(seed), str(fails_after)]


def absent(folder):
    blocked = folder / "blocked"
    blocked.write_text("an environment cannot be made below a file")
    return [installed(Peer("Absent", "absent", ("absent==1",)), blocked)]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("peers")
    peers = {
        "Same": partial(runs, folder, 0, 99),
        "Other": partial(runs, folder, 1, 99),
        "Broken": partial(runs, folder, 0, 3),
        "Absent": partial(absent, folder),
    }
    return compare(TINY, peers, 3, 60, folder)


def test_same_work_is_timed_and_compared(results):
    same = results["contenders"]["Same"]
    assert same["difference"] < 1e-6
    assert len(same["wall"]) == 3 and same["median"] > 0 and same["ratio"]["median"] > 0
    assert same["configuration"] == "a loop" and set(same["versions"]) == {"torch"}


def test_whoever_cannot_take_part_is_listed_with_the_reason(results):
    contenders = results["contenders"]
    assert "not the same work" in contenders["Other"]["failed"]
    assert contenders["Broken"]["failed"] == "RuntimeError: no more"
    assert contenders["Absent"]["failed"].startswith("not installed: ")


def test_table_json_and_page_hold_everybody_and_what_was_measured_before(results, tmp_path):
    document = tmp_path / "page.md"
    document.write_text(f"before\n{table.START}\nold\n{table.END}\nafter\n")
    for name in ("W2", "W1"):
        table.keep(name, results, tmp_path, document)
    assert json.loads((tmp_path / "peers.json").read_text()) == {"W1": results, "W2": results}
    written = document.read_text()
    assert written.startswith("before\n") and written.endswith("after\n") and "\nold\n" not in written
    for contender in ("FedTempo", "hand-written, two processes", "Same", "Other", "Broken", "Absent"):
        assert sum(line.startswith(f"| {contender} |") for line in written.splitlines()) == 2
    assert "The fastest other framework is Same" in written


def test_an_environment_that_cannot_be_made_says_why(tmp_path):
    with pytest.raises(PeerFailedError, match="not installed"):
        absent(tmp_path)


def test_a_framework_that_was_killed_between_turns_is_no_error_of_the_driver(tmp_path):
    program = "import sys; print('{}', flush=True); print('out of memory', file=sys.stderr); sys.stdin.read()"
    contender = Contender([sys.executable, "-c", program], tmp_path / "log", 30)
    (killed,) = tree(contender._process.pid)
    os.kill(killed, signal.SIGKILL)
    contender._process.wait()
    next(contender)
    assert contender.failure is not None and contender.failure.startswith("ended: ")
    next(contender)
    assert contender.cohorts == []
