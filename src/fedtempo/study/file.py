"""A study file: who is compared on which experiment, what is tuned, how it is judged, and what is claimed.

    [study]
    title = "PFLEGO, Table 1: MNIST, two classes a client"
    experiment = "mnist-high.toml"          # an ordinary experiment file, beside this one; or a table [experiment]
    seeds = { tune = 2, judge = 5 }         # how many, or lists; no seed is both
    budget = { trials = 8, patience = 5 }   # the same for everybody; see `Budget`

    [contestants.PFLEGO]
    algorithm = { name = "pflego", steps = 50, server_optimizer = "adam" }
    tune = { head_lr = { log = [0.01, 0.3] }, server_lr = [0.0003, 0.001, 0.003] }

    [contestants.FedPer]
    algorithm = { name = "fedper", steps = 50 }   # rates that it needs and does not name are tuned

    [[claims]]
    text = "PFLEGO is more accurate than FedPer."
    higher = ["PFLEGO", "FedPer", "existing_after/mean"]
    paper = { PFLEGO = 0.984, FedPer = 0.979 }

The whole file is checked before anything runs. An error names the file and the place in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from fedtempo.comparison.entrants import Entrant
from fedtempo.comparison.targets import COSTS
from fedtempo.config import parse, read_values
from fedtempo.config.experiment_file import found_beside, naming_code
from fedtempo.config.pairs import put
from fedtempo.errors import FedTempoError, is_number, require, unknown
from fedtempo.study.plan import GROUPS, Budget, FairPlan, Said, make_plan
from fedtempo.study.tunable import Tunable, first_values, from_entrants
from fedtempo.tuning.space import Dimension, dimensions_of

TABLES = ("study", "experiment", "contestants", "claims")
STUDY = ("title", "experiment", "seeds", "budget", "margin", "test", "reference", "target", "redraw_data")
CONTESTANT = ("algorithm", "set", "tune")
RULES = ("higher", "lower", "better")
CLAIM = ("text", "paper", *RULES)
BUDGET = ("trials", "patience", "widen", "tuning_rounds")


@dataclass(frozen=True)
class StudyFile:
    """A study that can be planned: everything in the file, checked."""

    title: str
    tunables: tuple[Tunable, ...]
    budget: Budget
    first_seed: int
    claims: tuple[tuple[str, str, str], ...]
    said: tuple[Said, ...]
    by_number: tuple[bool, ...]
    """Which claims say higher or lower, and not better: what that means for users depends on the metric."""
    reference: str | None
    target: float | None

    def plan(self) -> FairPlan:
        """The plan; it loads the data and prepares each contestant's first run."""
        alone = len(self.tunables) == 1
        plan = make_plan(
            self.tunables,
            self.budget,
            first_seed=self.first_seed,
            claims=self.claims if self.claims or alone else None,
            reference=self.reference,
            target=self.target,
            title=self.title,
            said=self.said,
        )
        if not plan.lower_is_better:
            return plan
        said = [_turned(one) if turn else one for one, turn in zip(self.said, self.by_number, strict=True)]
        claims = tuple(dict.fromkeys(one["claim"] for one in said)) or plan.claims
        return replace(plan, claims=claims, said=tuple(said))


def _turned(said: Said) -> Said:
    """A claim about users by a metric of which less is better: who has more is worse."""
    better, other, users = said["claim"]
    return said if users in COSTS else {**said, "claim": (other, better, users)}


def read_study(path: Path, allow_code: Sequence[str] = ()) -> StudyFile:
    """The study in a file. What is wrong is one line with the file and the place in it.

    It may name code in modules beside it, or in those that `allow_code` names.
    """
    with _named(path.name), naming_code(path.parent, allow_code):
        return _checked(read_values(path), path.parent)


def _checked(values: Mapping[str, Any], folder: Path) -> StudyFile:
    _know("table", values, TABLES)
    study = _table(values, "study", {})
    _know("setting study.", study, STUDY)
    base = _experiment(values, study, folder)
    sections = _table(values, "contestants")
    require(bool(sections), "contestants", "at least one table [contestants.NAME]", sections)
    tunables = [
        _contestant(label, section, base, bool(study.get("redraw_data"))) for label, section in sections.items()
    ]
    said = [_claim(number, one, list(sections)) for number, one in enumerate(_claims(values))]
    reference, target, title = study.get("reference"), study.get("target"), study.get("title", "")
    require(isinstance(title, str), "study.title", "a string", title)
    require(target is None or is_number(target), "study.target", "a finite number", target)
    if reference is not None and reference not in sections:
        raise unknown("study.reference", reference, sections)
    first = int(base.get("seed", 0))
    return StudyFile(
        title=title,
        tunables=tuple(tunables),
        budget=_budget(study),
        first_seed=first,
        claims=tuple(one["claim"] for one in said),
        said=tuple(said),
        by_number=tuple("better" not in one for one in _claims(values)),
        reference=reference,
        target=target,
    )


def _experiment(values: Mapping[str, Any], study: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The experiment's values: those of the file beside the study, or of its own table."""
    given = study.get("experiment")
    both = given is not None and "experiment" in values
    require(not both, "experiment", "a file in study.experiment or a table [experiment], not both", given)
    if given is None:
        base = dict(_table(values, "experiment"))
    else:
        require(isinstance(given, str), "study.experiment", "the path of an experiment file", given)
        here = Path(given).expanduser()
        path = here if here.exists() and not (folder / given).exists() else folder / given
        with _named("study.experiment"):
            base = read_values(path)
        folder = path.parent
    base.pop("tune", None)
    found: dict[str, Any] = found_beside(base, folder)
    return found


def _contestant(label: str, section: Any, base: Mapping[str, Any], redraw: bool) -> Tunable:
    """A contestant: its experiment with its own algorithm, and what is tuned of it."""
    place = f"contestants.{label}"
    require(isinstance(section, Mapping), place, "a table", section)
    _know(f"setting {place}.", section, CONTESTANT)
    given, changes, tune = (section.get(name, {}) for name in CONTESTANT)
    for name, table in (("algorithm", given), ("set", changes)):
        require(isinstance(table, Mapping), f"{place}.{name}", "a table", table)
    require(tune is False or isinstance(tune, Mapping), f"{place}.tune", "a table of fields to try, or false", tune)
    with _named(f"{place}.tune"):
        asked = {} if tune is False else {_field(name): one for name, one in dimensions_of(tune).items()}
    with _named(place):
        values: dict[str, Any] = {name: value for name, value in base.items() if name != "algorithm"}
        own = dict(given) if "name" in given else {**base.get("algorithm", {}), **given}
        tuned = {field.removeprefix("algorithm.") for name in asked for field in name.split(",")}
        values["algorithm"] = own if tune is False else _complete(own, asked)
        for field, value in changes.items():
            put(values, field, value, "set")
        entrant = Entrant(label, parse(values))
        # What the experiment's own algorithm names is where to start from; only a contestant's own table fixes a rate.
        fixed = {name: value for name, value in _named_in(given).items() if name not in tuned}
        ranges = {f"{label}/{name}": Dimension(name, one.choices, one.range) for name, one in asked.items()}
        if tune is False:
            fixed = _named_in(values["algorithm"])
        (found,) = from_entrants([entrant], {label: fixed}, ranges, redraw, optional=tune is False or bool(fixed))
    return found


def _named_in(section: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The settings that an algorithm's table names, those of the algorithm that it goes around as `around.NAME`."""
    own = {f"{prefix}{name}": value for name, value in section.items() if name not in ("name", "around")}
    inner = section.get("around")
    return {**own, **_named_in(inner, f"{prefix}around.")} if isinstance(inner, Mapping) else own


def _field(name: str) -> str:
    """Where a tuned field is: a plain name is a setting of the algorithm."""
    return ",".join(one if "." in one else f"algorithm.{one}" for one in (part.strip() for part in name.split(",")))


def _complete(section: Mapping[str, Any], asked: Mapping[str, Dimension]) -> dict[str, Any]:
    """The algorithm's table with first values of the rates that are tuned, also of the one that it goes around."""
    rates = first_values(asked)(str(section.get("name")))
    full = {**{name: value for name, value in rates.items() if "around" not in section}, **section}
    if isinstance(section.get("around"), Mapping):
        full["around"] = _complete(section["around"], {})
    for dimension in asked.values():
        for field in dimension.fields:
            if field.startswith("algorithm."):
                put(full, field.removeprefix("algorithm."), dimension.samples[0], "tune")
    return full


def _budget(study: Mapping[str, Any]) -> Budget:
    seeds, budget = (study.get(name, {}) for name in ("seeds", "budget"))
    require(isinstance(seeds, Mapping), "study.seeds", "a table such as { tune = 2, judge = 5 }", seeds)
    require(isinstance(budget, Mapping), "study.budget", "a table such as { trials = 8, patience = 5 }", budget)
    _know("setting study.seeds.", seeds, ("tune", "judge"))
    _know("setting study.budget.", budget, BUDGET)
    given = {**budget, **{name: study[name] for name in ("margin", "test") if name in study}}
    given |= {name: seeds[key] for name, key in (("tuning_seeds", "tune"), ("seeds", "judge")) if key in seeds}
    assert set(given) <= {field.name for field in fields(Budget)}
    with _named("study"):
        return Budget(**given)


def _claims(values: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    claims = values.get("claims", [])
    require(isinstance(claims, list), "claims", "tables [[claims]]", claims)
    return list(claims)


def _claim(number: int, given: Any, labels: Sequence[str]) -> Said:
    """A claim as who is better than whom, for whom."""
    place = f"claims[{number}]"
    require(isinstance(given, Mapping), place, "a table", given)
    _know(f"setting {place}.", given, CLAIM)
    rules = [rule for rule in RULES if rule in given]
    require(len(rules) == 1, place, f"given one of {', '.join(RULES)}", rules or None)
    rule = rules[0]
    parts = given[rule]
    listed = isinstance(parts, list) and len(parts) in (2, 3) and all(isinstance(part, str) for part in parts)
    require(listed, f"{place}.{rule}", "a list of two contestants and what is compared", parts)
    for label in parts[:2]:
        if label not in labels:
            raise unknown(f"{place}.{rule}: contestant", label, labels)
    require(parts[0] != parts[1], f"{place}.{rule}", "about two contestants", parts)
    users = _users(f"{place}.{rule}", parts[2] if len(parts) == 3 else "existing_after/mean")
    paper = given.get("paper", {})
    numbers = isinstance(paper, Mapping) and all(is_number(value) for value in paper.values())
    require(numbers, f"{place}.paper", "a table of numbers by contestant", paper)
    for label in paper:
        if label not in labels:
            raise unknown(f"{place}.paper: contestant", label, labels)
    better, other = parts[:2] if _first_is_better(rule, users) else parts[1::-1]
    return Said(text=str(given.get("text", "")), claim=(better, other, users), paper=dict(paper))


def _users(place: str, column: str) -> str:
    """Whom a claim is about: existing or new users, or a cost."""
    names = {f"{group}/mean": users for users, group in GROUPS.items()} | {name: name for name in (*GROUPS, *COSTS)}
    if column not in names:
        raise unknown(f"{place}: what is compared", column, names)
    return names[column]


def _first_is_better(rule: str, users: str) -> bool:
    """Higher scores are better, higher costs are worse."""
    return rule == "better" or (rule == "higher") == (users not in COSTS)


def _table(values: Mapping[str, Any], name: str, default: Any = None) -> Mapping[str, Any]:
    found = values.get(name, default)
    require(isinstance(found, Mapping), name, f"a table [{name}]", found)
    table: Mapping[str, Any] = found
    return table


def _know(kind: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            prefix = kind.partition(" ")[2]
            raise unknown(kind.partition(" ")[0], f"{prefix}{name}", [f"{prefix}{one}" for one in known])


@contextmanager
def _named(place: str) -> Iterator[None]:
    """Errors in here begin with the place."""
    try:
        yield
    except FedTempoError as error:
        raise type(error)(f"{place}: {error}") from error
