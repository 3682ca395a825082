"""The four algorithms on digits, as experiment files."""

from __future__ import annotations

from fedtempo.config import ExperimentFile, parse

ALGORITHMS: dict[str, dict[str, object]] = {
    "FedDecay": {"name": "feddecay", "lr": 0.1, "beta": 0.6, "steps": 4},
    "FedNAR(SCAFFOLD)": {
        "name": "fednar",
        "weight_decay": 0.01,
        "max_norm": 1.0,
        "around": {"name": "scaffold", "lr": 0.05, "steps": 3},
    },
    "PFLEGO": {"name": "pflego", "head_lr": 0.1, "server_lr": 0.1, "steps": 3},
    "FedAdam with decaying K": {
        "name": "fedadam",
        "lr": 0.1,
        "server_lr": 0.01,
        "steps": {"schedule": "per_round", "value": 6, "factor": 0.7},
    },
}


def experiment_file(name: str, rounds: int = 5) -> ExperimentFile:
    return parse(
        {
            "rounds": rounds,
            "cohort": 6,
            "batch_size": 16,
            "seed": 3,
            "backend": "serial",
            "data": {
                "name": "digits",
                "new_clients": 4,
                "seed": 1,
                "min_samples": 3,
                "split": {"name": "dirichlet", "clients": 20, "alpha": 0.5},
            },
            "model": {"name": "mlp", "inputs": 64, "hidden": [16], "outputs": 10},
            "algorithm": ALGORITHMS[name],
            "evaluation": {"every": rounds, "steps": 1},
        }
    )
