"""The package's shape: public names, one-way imports, nothing unsafe."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeGuard

import pytest

import fedtempo as ft

SOURCE = Path(ft.__file__).parent
UNIT = Path(__file__).parent

# A module imports only from packages of the same or an earlier line.
ORDER = [
    ["errors"],
    ["params", "randomness", "support"],
    ["schedules", "metrics", "tasks"],
    ["data", "devices"],
    ["models"],
    ["client"],
    ["server"],
    ["algorithms"],
    ["theory"],
    ["federation"],
    ["backends"],
    ["evaluation"],
    ["training"],
    ["config"],
    ["report"],
    ["contracts"],
    ["tuning", "comparison", "study"],
    ["public_names"],
    ["papers"],
    ["deploy"],
    ["cli"],
    ["__main__"],
]
LEVEL = {module: level for level, modules in enumerate(ORDER) for module in modules}


def modules() -> list[Path]:
    return sorted(p for p in SOURCE.rglob("*.py") if p != SOURCE / "__init__.py")


def part(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(["fedtempo", *parts]).removesuffix(".__init__")


@cache
def parsed(path: Path) -> ast.Module:
    """A file of the library, parsed once for all tests here."""
    return ast.parse(path.read_text())


@pytest.fixture(autouse=True, scope="module")
def forgotten() -> Iterator[None]:
    """Hundreds of thousands of nodes would slow every later search for garbage down."""
    yield
    parsed.cache_clear()


@cache
def known_modules() -> frozenset[str]:
    return frozenset(module_of(path) for path in SOURCE.rglob("*.py"))


@cache
def imported(path: Path) -> set[str]:
    """Every module of ours that a file imports: at its top, inside functions and under TYPE_CHECKING."""
    known = known_modules()
    names: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            named = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= (named & known) or {node.module}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name in known and name != module_of(path)}


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    """Modules that import each other, directly or by way of others; empty where none do."""
    left = dict(graph)
    while free := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in free:
            del left[name]
    return sorted(left)


def test_every_module_has_its_place() -> None:
    assert {part(p) for p in modules()} == set(LEVEL)


def test_imports_go_one_way() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)} imports {name}"
        for path in modules()
        for name in imported(path)
        if name != "fedtempo" and LEVEL[name.split(".")[1]] > LEVEL[part(path)]
    ]
    assert not wrong


def test_no_modules_import_each_other() -> None:
    assert not cycle_in({module_of(path): imported(path) for path in modules()})
    assert cycle_in({"a": {"b"}, "b": {"a"}, "c": {"a"}}) == ["a", "b", "c"]


# Tests below tests/unit that mirror no module, each with its reason.
OF_THEIR_OWN = {
    "test_structure.py": "looks at the shape of all of src/ and of tests/unit/",
}


def mirrored(test: Path) -> list[Path]:
    """What `a/test_b.py` may be a test of: the module a/b.py, or the package that it is named after."""
    name = test.stem.removeprefix("test_")
    return [test.parent / f"{name}.py", test.parent / name, *([test.parent] if test.parent.name == name else [])]


def test_every_unit_test_stands_where_its_module_stands() -> None:
    """The test of src/fedtempo/a/b.py is tests/unit/a/test_b.py; that of the package a is tests/unit/a/test_a.py."""
    tests = [path.relative_to(UNIT) for path in UNIT.rglob("test_*.py")]
    lost = [
        str(test)
        for test in tests
        if str(test) not in OF_THEIR_OWN and not any((SOURCE / path).exists() for path in mirrored(test))
    ]
    assert not lost, "no module of src/fedtempo has these names"
    assert set(OF_THEIR_OWN) <= {str(test) for test in tests}
    assert mirrored(Path("a/test_b.py")) == [Path("a/b.py"), Path("a/b")]
    assert mirrored(Path("a/test_a.py")) == [Path("a/a.py"), Path("a/a"), Path("a")]


# Tests that let time pass for its own sake; all others wait for a condition, by `tests.waiting.until`.
SLEEPS = {
    "waiting.py": "asks again after a moment",
    "e2e/browser/conftest.py": "asks a page again after a moment",
    "faults/figures.py": "kills a run at moments that are drawn",
    "faults/test_durable.py": "kills a run at moments that are drawn",
    "faults/test_pauses_and_clocks.py": "stops a process for half a minute",
    "e2e/ray/test_lost_machines.py": "a model that takes time, so that a machine is lost in the middle of a round",
    "e2e/deploy/hostile.py": "a node that is slower than its deadline",
    "e2e/test_interrupted.py": "Ctrl-C at moments spread over the start of a run",
}


def test_tests_wait_for_conditions() -> None:
    tests, word = UNIT.parent, "time." + "sleep("
    assert {str(path.relative_to(tests)) for path in tests.rglob("*.py") if word in path.read_text()} == set(SLEEPS)


def test_public_names() -> None:
    assert sorted(ft.__all__) == ft.__all__
    assert set(ft.__all__) == {
        "Admission",
        "Aggregate",
        "Algorithm",
        "Beside",
        "Carry",
        "ClientSettings",
        "ConfigError",
        "Costs",
        "DataError",
        "Evaluation",
        "Faults",
        "FedTempoError",
        "Hook",
        "Memory",
        "Metric",
        "ModelError",
        "Now",
        "OutputError",
        "PersonalModel",
        "Phase",
        "Probe",
        "RateRule",
        "Received",
        "Result",
        "RoundReport",
        "Run",
        "Schedule",
        "Scores",
        "Server",
        "Serving",
        "StepInfo",
        "StopRule",
        "StoreError",
        "TrainingError",
        "Transform",
        "Uploads",
        "UserScores",
        "algorithms",
        "asynchrony",
        "check_algorithm",
        "check_backend",
        "check_loss",
        "check_metric",
        "check_model",
        "cohort",
        "compare",
        "compress",
        "data",
        "descend",
        "descend_scaled",
        "devices",
        "length",
        "load_result",
        "metrics",
        "models",
        "named",
        "objectives",
        "optimizers",
        "params",
        "robust",
        "run",
        "schedules",
        "tasks",
        "theory",
        "trackers",
        "train",
        "transforms",
    }
    assert set(ft.algorithms.ALGORITHMS) >= {
        *("fedsgd", "fedavg", "reptile", "fomaml", "feddecay", "fedprox", "scaffold", "fedavgm", "fedadam", "fedyogi"),
        *("fedadagrad", "fedexp", "fednar", "pflego", "fedper", "fedrep", "fedbabu", "fedrecon", "ditto", "pfedme"),
        *("fedem", "fedbn", "local_only"),
    }


# Names that stand in more than one module, each with its reason. Everything else has one meaning.
SHARED_NAMES = {
    **dict.fromkeys(
        ("compare", "describe", "reproduce", "run", "simulate"),
        "a command has the name of what it calls",
    ),
    "train": "the function that users call, and the one method of each backend",
    "Run": "a run that trains, and a run that is compared",
    "quadratic": "a data set and the model for it",
    "chain": "one after the other: transforms of a step, augmentations of a row, compressors of a tensor",
    "check_model": "the contract for users, and the check of a run that calls it",
    "constant": "a schedule that never changes, and devices that are all alike",
    "uniform": "a draw, and the cohort of equally likely clients",
    "sgd": "a client's optimizer by keyword, and the transform it is made of",
}


def test_a_public_name_has_one_meaning() -> None:
    homes: dict[str, set[str]] = {}
    for path in modules():
        for node in parsed(path).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_"):
                homes.setdefault(node.name, set()).add(str(path.relative_to(SOURCE)))
    twice = {name: sorted(files) for name, files in homes.items() if len(files) > 1}
    assert not {name: files for name, files in twice.items() if name not in SHARED_NAMES}
    assert set(SHARED_NAMES) <= set(twice), "a name that stands once needs no exception"


MOST_ANY = 58
"""What is left has no narrower type: a tree of tensors, JSON, another library's objects. Lower it where you can."""


def public_functions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef]:
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node.body)
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node


def annotations(function: ast.FunctionDef) -> Iterator[ast.expr]:
    given = function.args
    for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
        if argument is not None and argument.annotation is not None:
            yield argument.annotation
    if function.returns is not None:
        yield function.returns


def test_public_signatures_have_types() -> None:
    """`Any` in a public signature says nothing to a reader and switches the type checker off."""
    loose = [
        f"{path.relative_to(SOURCE)}:{function.name}"
        for path in modules()
        for function in public_functions(parsed(path).body)
        if any(isinstance(n, ast.Name) and n.id == "Any" for one in annotations(function) for n in ast.walk(one))
    ]
    assert len(loose) <= MOST_ANY, loose


def test_nothing_stored_or_received_can_run() -> None:
    banned = re.compile(
        r"\bpickle\b|torch\.load\(|extractall\(|(?<![.\w])eval\(|(?<![.\w])exec\(|yaml\.load|allow_pickle=True|shell=True|\bmarshal\b"
    )
    hits = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path in SOURCE.rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if banned.search(line.split("#")[0]) and '"""' not in line and "allow_pickle=False" not in line
    ]
    assert not hits


MOST_LINES_OF_AN_ALGORITHM = 60
"""Of code: a method that is read in one go fits on a screen."""
NO_ALGORITHMS = {
    "__init__.py": "lists the algorithms, a line each",
    "algorithm.py": "says what an algorithm is made of",
    "named.py": "checks the settings of all algorithms",
}


def code_lines(path: Path) -> int:
    """Lines without imports, docstrings, comments and blank ones."""
    lines = path.read_text().splitlines()
    code = {number for number, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("#")}
    for node in ast.walk(parsed(path)):
        if isinstance(node, (ast.Import, ast.ImportFrom)) or is_text(node):
            code -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(code)


def is_text(node: ast.AST) -> TypeGuard[ast.Expr]:
    """Whether a statement is only text: the docstring of a module, a function, a class or a constant."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def test_algorithms_are_short(tmp_path: Path) -> None:
    folder = SOURCE / "algorithms"
    lines = {path.relative_to(folder).as_posix(): code_lines(path) for path in folder.rglob("*.py")}
    long = {name: count for name, count in lines.items() if count > MOST_LINES_OF_AN_ALGORITHM}
    assert set(long) == set(NO_ALGORITHMS), f"more than {MOST_LINES_OF_AN_ALGORITHM} lines: {long}"
    example = tmp_path / "example.py"
    example.write_text('"""Text\nof two lines."""\n\nimport ast\n\n# Why.\nLIMIT = 1  # counts\n"""Its text."""\n')
    assert code_lines(example) == 1


def test_nothing_is_subclassed_but_what_must_be() -> None:
    """Exceptions, torch modules and modes, pydantic models, typing's forms; classes of http.server and rich.

    `RunHistory` and `FinishedRun` are what four kinds of run have in common, and hold no data of their own.
    """
    allowed = re.compile(
        r"(Error|Exception)$|^(nn\.Module|BaseModel|NamedTuple|Protocol|TypedDict|Torch(Function|Dispatch)Mode|Sequence\[int\]|FileSection|SplitNetwork|StrEnum|BaseHTTPRequestHandler|logging\.Handler|ThreadingHTTPServer|Console|RunHistory|FinishedRun|torch\.autograd\.Function)$"
    )
    wrong = [
        f"{path.relative_to(SOURCE)}:{node.name}"
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef) and not all(allowed.search(ast.unparse(base)) for base in node.bases)
    ]
    assert not wrong
