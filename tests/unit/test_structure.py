"""The package's shape: public names, one-way imports, nothing unsafe, limits we hold ourselves to."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import fedtempo as ft

SOURCE = Path(ft.__file__).parent

# A module imports only from modules of the same or an earlier line.
ORDER = [
    ["errors"],
    ["exact", "params", "randomness", "profiling", "recording"],
    ["schedules", "tasks", "dropout"],
    ["transforms", "network"],
    ["objectives"],
    ["gradients"],
    ["data"],
    ["models"],
    ["cohort"],
    ["local"],
    ["aggregation"],
    ["admission", "injection", "robust"],
    ["scrutiny", "wire"],
    ["algorithms"],
    ["federation"],
    ["backends"],
    ["costs", "evaluation", "progress", "checks"],
    ["reports"],
    ["faultpoints", "state"],
    ["store"],
    ["durable"],
    ["experiment"],
    ["round", "result"],
    ["trackers"],
    ["training"],
    ["contracts"],
    ["theory"],
    ["experiments"],
    ["planning", "config"],
    ["reporting"],
    ["deploy"],
    ["comparison"],
    ["tuning"],
    ["demo"],
    ["cli"],
]
LEVEL = {module: level for level, modules in enumerate(ORDER) for module in modules}


def modules() -> list[Path]:
    return sorted(p for p in SOURCE.rglob("*.py") if p != SOURCE / "__init__.py")


def part(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(tree: ast.Module) -> list[str]:
    """Imports at module level; one inside a function is a deliberate late one."""
    names = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("fedtempo"):
            names += [node.module] if node.module != "fedtempo" else [f"fedtempo.{n.name}" for n in node.names]
    return [name.split(".")[1] for name in names if "." in name]


def test_every_module_has_its_place() -> None:
    assert {part(p) for p in modules()} == set(LEVEL)


def test_imports_go_one_way() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)} imports {name}"
        for path in modules()
        for name in imported(ast.parse(path.read_text()))
        if LEVEL[name] > LEVEL[part(path)]
    ]
    assert not wrong


def test_public_names() -> None:
    assert sorted(ft.__all__) == ft.__all__
    assert set(ft.__all__) == {
        "Admission",
        "Algorithm",
        "ConfigError",
        "DataError",
        "Evaluation",
        "Faults",
        "FedTempoError",
        "ModelError",
        "Now",
        "OutputError",
        "Result",
        "RoundReport",
        "Schedule",
        "StoreError",
        "TrainingError",
        "algorithms",
        "check_algorithm",
        "check_backend",
        "cohort",
        "compare",
        "data",
        "models",
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


def test_nothing_stored_or_received_can_run() -> None:
    banned = re.compile(
        r"\bpickle\b|torch\.load\(|extractall\(|\beval\(|\bexec\(|yaml\.load|allow_pickle=True|shell=True|\bmarshal\b"
    )
    hits = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path in SOURCE.rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if banned.search(line.split("#")[0]) and '"""' not in line and "allow_pickle=False" not in line
    ]
    assert not hits


def test_files_and_functions_are_small() -> None:
    large = [f"{p.relative_to(SOURCE)}" for p in SOURCE.rglob("*.py") if len(p.read_text().splitlines()) > 320]
    assert not large
    long = [
        f"{path.relative_to(SOURCE)}:{node.name}"
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno > 60
    ]
    assert not long


def test_nothing_is_subclassed_but_what_must_be() -> None:
    """Exceptions, torch modules, functions and modes, pydantic models, typing's own forms, http.server's handler."""
    allowed = re.compile(
        r"(Error|Exception)$|^(nn\.Module|BaseModel|NamedTuple|Protocol|Torch(Function|Dispatch)Mode|Sequence\[int\]|Section|SplitNetwork|StrEnum|BaseHTTPRequestHandler|ABC|Engine|torch\.autograd\.Function)$"
    )
    wrong = [
        f"{path.relative_to(SOURCE)}:{node.name}"
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and not all(allowed.search(ast.unparse(base)) for base in node.bases)
    ]
    assert not wrong
