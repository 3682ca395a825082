"""What runs are called where nobody named them: by their algorithm, and by whatever else tells them apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedtempo.errors import ConfigError
from fedtempo.training.experiment import CONTENT
from fedtempo.training.result import Result
from fedtempo.training.saved import SavedResult

RunIdentity = Mapping[str, str]
HARMLESS = ("rounds", "cohort", "batching", "dtype", "quorum", "policy", "backend", "block", "version")
"""What may differ between runs that are compared: it is part of what is compared, and said beside the table."""
BITS_ONLY = ("backend", "block", "version")
"""Those of them that change at most the last bits: runs that differ only in these are the same contestant."""
TELLING = ("architecture", "augment", f"augment{CONTENT}", "devices", f"devices{CONTENT}", "asynchrony", "start")
"""Runs that differ in one of these are different contestants, not two seeds of one."""


def told_apart(runs: Sequence[RunIdentity]) -> list[str]:
    """A label for each run: its algorithm, and whatever else differs between the runs but for the seed."""
    varying = [name for name in (*HARMLESS, *TELLING) if name not in BITS_ONLY and differs(runs, name)]
    # Where words differ, the hash that stands beside them says nothing more.
    said_twice = {name + CONTENT for name in varying}
    varying = [name for name in varying if name not in said_twice]
    varying += [name for name in own_codes(runs) if name not in varying and code_differs(runs, name)]
    return [", ".join([run["algorithm"], *(f"{name} {_short(run, name)}" for name in varying)]) for run in runs]


def names_of_results(results: Sequence[Result | SavedResult]) -> list[str]:
    """A name for each result, such that only seeds of one thing share one: results of one name are averaged."""
    names = [_algorithm(result) for result in results]
    if len(set(names)) == len(names):
        return names
    identities = [_identity(result) for result in results]
    labels = told_apart(identities)
    seen: dict[tuple[str, str], int] = {}
    for index, (label, identity) in enumerate(zip(labels, identities, strict=True)):
        first = seen.setdefault((label, identity["seed"]), index)
        if results[first].digest() != results[index].digest():
            raise _unnamed(label, identities[first], identity)
    return labels


def value_in(run: RunIdentity, name: str) -> str:
    """What a run has in a field; a run without it has none."""
    return run.get(name, "none")


def differs(runs: Sequence[RunIdentity], name: str) -> bool:
    """Whether the runs have different things in a field."""
    return len({value_in(run, name) for run in runs}) > 1


def own_codes(runs: Sequence[RunIdentity]) -> list[str]:
    """The hashes of the user's own functions: of two that print alike, only they tell which numbers are meant."""
    named = dict.fromkeys(name for run in runs for name in run if name.startswith("algorithm."))
    return [*named, f"cohort{CONTENT}"]


def code_differs(runs: Sequence[RunIdentity], name: str) -> bool:
    """Whether runs that are the same in words differ in a hash. Of other data or another version it says nothing."""
    words = ("algorithm", "cohort", "rounds", "version", "data")
    found: dict[tuple[str, ...], str] = {}
    keys = [tuple(value_in(run, word) for word in words) for run in runs]
    return any(
        found.setdefault(key, value_in(run, name)) != value_in(run, name) for key, run in zip(keys, runs, strict=True)
    )


def _short(run: RunIdentity, name: str) -> str:
    """A field for a label; eight digits of a hash are enough to tell two apart."""
    return value_in(run, name)[:8] if name.endswith(CONTENT) else value_in(run, name)


def _algorithm(result: Result | SavedResult) -> str:
    if isinstance(result, SavedResult):
        return str(result.summary["algorithm"])
    return repr(result.experiment.federation.algorithm)


def _identity(result: Result | SavedResult) -> RunIdentity:
    return result.identity if isinstance(result, SavedResult) else result.experiment.identity(strict=False)


def _unnamed(label: str, first: RunIdentity, other: RunIdentity) -> ConfigError:
    """Two results that no label tells apart, though they are no seeds of one another."""
    different = [name for name in dict.fromkeys([*first, *other]) if value_in(first, name) != value_in(other, name)]
    what = different[0].removesuffix(CONTENT) if different else "their numbers"
    return ConfigError(
        f"labels must be given: results of one name and seed would be averaged. Got two of {label} with seed "
        f"{other['seed']} that differ in {what}."
    )
