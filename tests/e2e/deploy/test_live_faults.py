"""Real deployments on loopback that go wrong: each fault costs what it must, and its cause is named."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr")

from tests.e2e.deploy.experiments import experiment_file
from tests.e2e.deploy.stage import Stage, simulated
from tests.waiting import until

HOSTILE = "tests.e2e.deploy.hostile"


@pytest.mark.slow("a run of six rounds; keys are added and removed in tests/unit/deploy/membership, too")
def test_a_node_that_is_revoked_during_a_run_and_admitted_again(tmp_path: Path) -> None:
    """Its clients are lost as long as its key is away, and both sides say so."""
    key, away = tmp_path / "keys/server/nodes/2.pub", tmp_path / "2.pub"
    with Stage(tmp_path, experiment_file("FedDecay", rounds=12)) as stage:

        def act(line: str) -> None:
            if line.startswith("round 1/"):
                key.rename(away)
            elif line == "node 2 has left":
                assert until(lambda: "has not admitted this node's key, or no more" in stage.said(2))
                away.rename(key)

        assert stage.run(act) == 0, stage.errors
        failures = stage.failures()
        assert failures and {client % 2 for _, client, _ in failures} == {1}
        assert "node 2 is let in no more: its key was removed" in stage.lines
        assert stage.lines.index("node 2 has left") < stage.lines.index("node 2 is back")


@pytest.mark.slow("the server has to notice that its only node is gone, which takes it half a minute")
def test_a_server_whose_only_node_is_killed_in_a_round_waits_and_asks_again(tmp_path: Path) -> None:
    with Stage(tmp_path, experiment_file("PFLEGO", rounds=3), nodes=1) as stage:

        def kill_then_restart(line: str) -> None:
            if line.startswith("round 1/"):
                stage.nodes[0].kill()
            elif line.startswith("all nodes have gone"):
                stage.nodes[0] = stage.node(1, (0, 1))

        assert stage.run(kill_then_restart) == 0, stage.errors
        assert any(line.startswith("all nodes have gone") for line in stage.lines)
        assert stage.failures() == []
        assert stage.digest() == simulated(stage.file)


@pytest.mark.slow("waits for a deadline, which a busy machine must not miss")
def test_oversized_slow_doubled_and_posing_answers(tmp_path: Path) -> None:
    """Four nodes misbehave, each in its own way; a fifth sends every answer twice. Of all, its clients alone count."""
    everybody = {"cohort": 16, "deadline": 25.0, "evaluation": None}
    file = experiment_file("FedDecay", rounds=1).model_copy(update=everybody)
    with Stage(tmp_path, file, nodes=6, start=False, options=("--patience", "60")) as stage:
        for number, loader in enumerate(("oversized", "slow", "doubled", "posing"), start=2):
            stage.node(number, options=("--loader", f"{HOSTILE}:{loader}"))
        stage.node(1, options=("--loader", f"{HOSTILE}:repeating"))
        stage.node(6, (5, 6))
        assert stage.run() == 0, stage.errors
        reasons = {client % 6: reason for _, client, reason in stage.failures()}
        assert reasons == {
            1: "its answer is longer than what it was asked for",
            2: "no answer within the deadline of 25 s",
            3: reasons[3],
            4: "no answer within the deadline of 25 s",
        }
        assert "answers for" in reasons[3]
        assert "wanted of the second: 0" in stage.said(1), "it did try"


@pytest.mark.slow("the server has to wait in vain; what loaders raise is tested in tests/unit/deploy, too")
def test_a_loader_that_raises_is_named_at_the_server_and_at_the_node(tmp_path: Path) -> None:
    options = ("--patience", "6")
    with Stage(tmp_path, experiment_file("FedDecay", rounds=1), nodes=1, start=False, options=options) as stage:
        stage.node(1, options=("--loader", f"{HOSTILE}:broken"))
        assert stage.run() == 7
        assert "node 1 was refused: loader must return this node's clients." in stage.errors
        assert f"{HOSTILE}:broken raised RuntimeError: no database" in stage.errors
        assert "no database" in stage.said(1)
