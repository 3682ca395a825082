"""The lab uses the core by the names that users have: every import is read."""

from __future__ import annotations

import ast
import importlib
import types
from pathlib import Path

import fedtempo as ft
from fedtempo import public_names

SOURCE = Path(ft.__file__).parent
LAB = ("papers", "comparison", "tuning", "report", "theory", "contracts", "study")
TOOLS = ("errors", "support", "randomness")
"""What every ring stands on."""

INSIDE = {
    "fedtempo.algorithms": {"IN_FILES"},
    "fedtempo.algorithms.algorithm": {"Weighting"},
    "fedtempo.algorithms.fedhyper_client": {"last_displacement", "sending_last"},
    "fedtempo.algorithms.parts.rate_rules": {"ruled"},
    "fedtempo.backends": {"Backend", "engine_for", "serial", "vectorised"},
    "fedtempo.backends.start": {"FORCED", "SENDS", "start_method", "why_not_fork"},
    "fedtempo.client.compression.packing": {"packed_forms"},
    "fedtempo.client.network": {"Network", "inputs_of", "tensors_of"},
    "fedtempo.client.phase": {"Length"},
    "fedtempo.client.rules": {"State", "zero_of"},
    "fedtempo.config": {
        "EXPERIMENT",
        "ExperimentFile",
        "dump",
        "fingerprint",
        "make_data",
        "parse",
        "read",
        "read_values",
        "settings_of",
        "stored_file",
        "train_file",
        "without_places",
        "write_experiment",
    },
    "fedtempo.config.experiment_file": {"found_beside", "naming_code"},
    "fedtempo.config.own_code": {"find", "granting"},
    "fedtempo.config.pairs": {"pairs_of", "put"},
    "fedtempo.config.schema": {"DataSection"},
    "fedtempo.config.settings": {"not_given"},
    "fedtempo.data.augment": {"random_crop", "random_flip"},
    "fedtempo.data.files.folders": {"DATA_VARIABLE", "cache_folder", "missing", "present"},
    "fedtempo.data.parts": {"PARTS"},
    "fedtempo.data.summary": {"merged_rows"},
    "fedtempo.evaluation.over_seeds": {
        "Estimate",
        "LEVEL",
        "half_width",
        "level_with_best",
        "over_seeds",
        "student_mass",
        "student_quantile",
    },
    "fedtempo.evaluation.protocol": {"STATISTICS", "bottom_decile", "decile_in_words"},
    "fedtempo.evaluation.scoring": {"Evaluator"},
    "fedtempo.federation.traffic": {"bytes_of"},
    "fedtempo.models.character_transformer": {"TransformerBlock"},
    "fedtempo.models.split": {"SplitNetwork"},
    "fedtempo.models.weights": {"build", "seeded"},
    "fedtempo.training.checks.scoring": {"UnrepeatableError"},
    "fedtempo.training.checks.vectorises": {"why_not_vectorised"},
    "fedtempo.training.experiment": {"CONTENT", "Experiment"},
    "fedtempo.training.labels": {
        "HARMLESS",
        "TELLING",
        "code_differs",
        "differs",
        "names_of_results",
        "own_codes",
        "told_apart",
    },
    "fedtempo.training.loop": {"drained", "train_experiment"},
    "fedtempo.training.pictures": {"DataPicture", "RatePlan", "evenly", "picture_of", "plan_of"},
    "fedtempo.training.pool": {"Ask", "Asked", "Perform", "Pool", "WorkerDiedError"},
    "fedtempo.training.prepare": {"prepare"},
    "fedtempo.training.private_runs": {"WITHHELD"},
    "fedtempo.training.round_report": {"RunHistory"},
    "fedtempo.training.saved": {"SavedResult", "Which"},
    "fedtempo.training.storage.database": {"DATABASE"},
    "fedtempo.training.storage.folders": {"AT_THE_END", "SUMMARY"},
    "fedtempo.training.storage.reader": {"RunReader"},
    "fedtempo.training.trackers.csv": {"rounds_as_csv"},
    "fedtempo.training.trackers.progress": {"display"},
    "fedtempo.training.view": {"AGAIN", "RunFolder", "script_command", "timestamp", "versions"},
}
"""What the lab still takes from inside the core, by module. The list may only become shorter."""


def test_the_lab_imports_names_that_users_have() -> None:
    public = names_that_users_have()
    deep: dict[str, set[str]] = {}
    for module, name in imports_of_the_lab():
        value = getattr(importlib.import_module(module), name)
        if id(value) not in public or isinstance(value, (str, int, float, tuple)):
            deep.setdefault(module, set()).add(name)
    new = {module: sorted(names - INSIDE.get(module, set())) for module, names in deep.items()}
    assert not {module: names for module, names in new.items() if names}, "use a public name of `fedtempo`, or add one"


def test_an_import_from_inside_would_be_noticed() -> None:
    """`Selected` of the store is no name that users have; `ft.run`'s module has one."""
    from fedtempo.training.run import run
    from fedtempo.training.storage.selected_round import Selected

    assert id(run) in names_that_users_have() and id(Selected) not in names_that_users_have()
    assert len(list(imports_of_the_lab())) > 300


def names_that_users_have() -> set[int]:
    """Everything that `fedtempo` and its public modules hand out."""
    found = set[int]()
    for name in public_names.__all__:
        value = getattr(public_names, name)
        found.add(id(value))
        if isinstance(value, types.ModuleType):
            found |= {id(getattr(value, each)) for each in getattr(value, "__all__", dir(value)) if each[0] != "_"}
    return found


def imports_of_the_lab() -> list[tuple[str, str]]:
    """Module and name of everything that the lab imports from the core."""
    return [
        (node.module, alias.name)
        for room in LAB
        for path in (SOURCE / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("fedtempo.")
        if node.module.split(".")[1] not in (*LAB, *TOOLS)
        for alias in node.names
    ]
