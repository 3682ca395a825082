"""Every block of the README and the documentation runs or parses and prints what is shown; every link leads on."""

from __future__ import annotations

import inspect
import io
import itertools
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import typer.main
from benchmarks import methods, methods_page

import fedtempo as ft
from fedtempo import errors
from fedtempo.algorithms import ALGORITHMS
from fedtempo.cli.commands import imported
from fedtempo.cli.main import INTERRUPTED, UNEXPECTED, USAGE, app
from fedtempo.config import make_algorithm, parse
from fedtempo.papers.control import adapters, neighbours, personal
from fedtempo.papers.control.methods import METHODS
from fedtempo.study.file import read_study
from fedtempo.training.log import LOGGER
from fedtempo.training.trackers import TRACKERS
from tests import ROOT
from tests.programs import fedtempo
from tests.slow import slow_but

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.S | re.M)
WITH_OUTPUT = re.compile(r"^```python\n(.*?)^```$(?:\s*^```output\n(.*?)^```$)?", re.S | re.M)
CONSOLE = re.compile(r"^```console\n(.*?)^```$(?:\s*^```output\n(.*?)^```$)?", re.S | re.M)
FRACTION = re.compile(r"(?<![\w.])-?\d*\.\d+(?![\w.])")
EXCERPT = re.compile(r"^```py source=(\S+)\n(.*?)^```", re.S | re.M)
SHELL = {"", "sh", "shell", "bash", "console"}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[str]:
    return [text for language, text in BLOCK.findall(page.read_text()) if language in languages]


def with_blocks(*languages: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, *languages)]


OWN = (
    "own-algorithm",
    "own-optimizer",
    "own-data",
    "own-loss",
    "own-metric",
    "own-model",
    "lora",
    "save-and-serve",
    "language-model",
)
LONG = [DOCS / f"{name}.md" for name in ("tutorial", "compare", "compression", "evaluation", "devices", "tune")]
LONG += [DOCS / "how-to" / f"{name}.md" for name in (*OWN, "compare-for-a-paper", "csv-to-model", "privacy")]
"""They train for seconds; tests of what they use run every time."""
SHORT = [page for page in with_blocks("python") if page not in LONG]


@pytest.fixture
def level_kept() -> Iterator[None]:
    """One page shows how to silence the library, and the tests after it look at what the library says."""
    level = LOGGER.level
    yield
    LOGGER.setLevel(level)


@pytest.mark.parametrize(
    "page", slow_but(SHORT, with_blocks("python"), "other tests use the same functions"), ids=name_of
)
@pytest.mark.usefixtures("level_kept")
def test_code_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one scope from top to bottom. A block of `output` right after a block of Python is what that block prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)  # pages show what is printed where nothing limits the width
    scope: dict[str, object] = {"__name__": "__main__"}
    for block, shown in WITH_OUTPUT.findall(page.read_text()):
        with redirect_stdout(io.StringIO()) as printed:
            exec(compile(block, page.name, "exec"), scope)
        assert not shown or (difference := first_difference(shown, printed.getvalue())) is None, difference
    assert len(scope) > 1


def first_difference(shown: str, printed: str) -> str | None:
    """The first line that differs. Words must be equal, fractions close: another processor rounds otherwise.

    A line of three dots ends what is shown.
    """
    ours, theirs = shown.rstrip().splitlines(), printed.rstrip().splitlines()
    for line, other in itertools.zip_longest(ours, theirs, fillvalue="(no line)"):
        if line.strip() == "...":
            return None
        pairs = zip(FRACTION.findall(line), FRACTION.findall(other), strict=False)
        close = all(abs(float(a) - float(b)) <= 0.02 + 0.02 * abs(float(b)) for a, b in pairs)
        if not close or " ".join(FRACTION.sub("#", line).split()) != " ".join(FRACTION.sub("#", other).split()):
            return f"shown:   {line}\nprinted: {other}\nall of it:\n{printed}"
    return None


def test_an_output_that_differs_is_noticed() -> None:
    assert first_difference("a .912 b", "a .913  b\n") is None
    assert first_difference("a .912 b", "a .812 b") is not None
    assert first_difference("a .912 b", "a .912 c") is not None
    assert first_difference("a", "a\nb") is not None
    assert first_difference("a\n...", "a\nb") is None and first_difference("c\n...", "a\nb") is not None
    assert "b" in str(first_difference("a 3", "b 3"))


@pytest.mark.parametrize("page", with_blocks("output"), ids=name_of)
def test_every_output_follows_its_program(page: Path) -> None:
    programs = [*WITH_OUTPUT.findall(page.read_text()), *CONSOLE.findall(page.read_text())]
    assert sum(bool(shown) for _, shown in programs) == len(blocks(page, "output"))


@pytest.mark.slow("trains from files what the page's Python trains every time")
@pytest.mark.parametrize("page", [page for page in PAGES if CONSOLE.search(page.read_text())], ids=name_of)
def test_console_blocks_print_what_is_shown(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the page's own experiment file, in a terminal of 110 columns; the last command's output is shown."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    (tmp_path / "experiment.toml").write_text(blocks(page, "toml")[0])
    for block, shown in CONSOLE.findall(page.read_text()):
        for line in block.splitlines():
            program, *words = shlex.split(line.removeprefix("$ "))
            assert program == "fedtempo"
            printed, said = fedtempo(*words).communicate()
            assert printed or "compare" not in words, said
        assert not shown or (difference := first_difference(shown, printed)) is None, difference


def test_the_readme_s_composition_is_the_file_s() -> None:
    """The page says that the file runs the same algorithm."""
    readme, file = ROOT / "README.md", ROOT / "examples" / "composition.toml"
    scope: dict[str, object] = {"ft": ft}
    exec(next(block for block in blocks(readme, "python") if "algorithm = ft.algorithms.fednar(" in block), scope)
    assert repr(scope["algorithm"]) == repr(make_algorithm(tomllib.loads(file.read_text())["algorithm"]))


@pytest.mark.parametrize("page", with_blocks("py"), ids=name_of)
def test_excerpts_are_the_source(page: Path) -> None:
    """A block that says which file it is from stands in that file, letter by letter."""
    for file, excerpt in EXCERPT.findall(page.read_text()):
        assert excerpt in (ROOT / "src" / "fedtempo" / file).read_text(), f"{file}:\n{excerpt}"


@pytest.mark.parametrize("page", with_blocks("toml"), ids=name_of)
def test_toml_blocks_are_experiments_or_studies(page: Path, tmp_path: Path) -> None:
    experiment = next(block for block in blocks(DOCS / "experiments.md", "toml"))
    (tmp_path / "experiment.toml").write_text(experiment)
    for block in blocks(page, "toml"):
        if "contestants" in tomllib.loads(block):
            (tmp_path / "study.toml").write_text(block)
            assert read_study(tmp_path / "study.toml").tunables
        else:
            assert parse(tomllib.loads(block)).rounds >= 1


def commands(page: Path) -> list[list[str]]:
    """The words of the lines of shell blocks that call `fedtempo`, up to a comment, `&`, `|` or `>`."""
    found = []
    for block in blocks(page, *SHELL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True) if re.match(r"(\$ )?fedtempo\s", line) else []
            end = next((i for i, word in enumerate(words) if word[0] in "&|>"), len(words))
            found += [words[1:end]] if words else []
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name_of)
def test_commands_parse(page: Path) -> None:
    """The command and every option exist, and values are of their kind; nothing is run."""
    for words in commands(page):
        command, arguments = typer.main.get_command(app), [word for word in words if word != "--debug"]
        name = "fedtempo"
        while hasattr(command, "commands") and arguments and not arguments[0].startswith("-"):
            name = arguments.pop(0)
            assert name in command.commands, f"fedtempo {' '.join(words)}"
            command = imported(name) if command.name == "fedtempo" else command.commands[name]
        assert command.make_context(name, arguments).info_name == name


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", BLOCK.sub("", page.read_text()))
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


def test_every_exit_code_has_a_page() -> None:
    kinds = [value for value in vars(errors).values() if isinstance(value, type) and hasattr(value, "exit_code")]
    codes = {kind.exit_code for kind in kinds} - {errors.FedTempoError.exit_code} | {USAGE, UNEXPECTED, INTERRUPTED}
    assert {int(page.stem) for page in (DOCS / "errors").glob("[0-9]*.md")} == codes
    index = (DOCS / "errors" / "index.md").read_text()
    assert all(f"({code}.md)" in index for code in codes)


def test_what_there_is_is_documented() -> None:
    algorithms, trackers = (DOCS / "algorithms.md").read_text(), (DOCS / "trackers.md").read_text()
    assert [name for name in ALGORITHMS if f"`{name}" not in algorithms] == []
    assert [name for name in TRACKERS if f"`{name}`" not in trackers] == []


def test_the_map_has_every_method_once_and_names_files_that_exist() -> None:
    page = (DOCS / "methods.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| .* \| `(src/fedtempo/algorithms/\w+\.py)` \|", page, re.MULTILINE)
    assert sorted(name for name, _ in rows) == sorted(ALGORITHMS)
    for name, file in rows:
        assert inspect.getsourcefile(inspect.unwrap(ALGORITHMS[name])) == str(ROOT / file)
    assert all((ROOT / file).exists() for file in re.findall(r"`(src/[\w/]+\.py)`", page))
    assert "images/methods.svg" in page
    drawn = methods_page.picture(page)
    assert {name for name in ALGORITHMS if f">{name}</text>" not in drawn} == set()
    assert methods_page.PICTURE.read_text() == drawn, "draw it anew with python -m benchmarks.methods_page"


def test_the_map_s_measured_columns_are_those_of_committed_results() -> None:
    page = methods_page.PAGE.read_text()
    assert methods_page.filled(page) == page, "write them anew with python -m benchmarks.methods_page"
    costs = json.loads(methods.FILE.read_text())["costs"]
    assert set(costs) <= set(ALGORITHMS), "of a method that has gone"
    compared = {
        **{name: (label, METHODS) for name, label in methods_page.LABELS.items()},
        **{name: (label, neighbours.METHODS) for name, label in methods_page.NEIGHBOURS.items()},
        **{name: (label, personal.METHODS) for name, label in methods_page.PERSONAL.items()},
        **{name: (label, adapters.METHODS) for name, label in methods_page.ADAPTERS.items()},
    }
    assert all(label in known for label, known in compared.values()), "labels are those of the comparison"
    elsewhere = {name for _, names in methods_page.PAGES.values() for name in names}
    # A new method is "not measured" until somebody measures it.
    assert {*compared, *elsewhere, *methods_page.OWN_WORDS} <= set(ALGORITHMS)


def test_the_algorithm_of_ones_own_is_short() -> None:
    (block,) = [text for text in blocks(DOCS / "how-to" / "own-algorithm.md", "python") if "def averaged" in text]
    assert len(block.strip().splitlines()) < 40
