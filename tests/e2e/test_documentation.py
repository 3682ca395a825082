"""Every block of the README and the documentation runs or parses, every link leads on, and the site stands alone."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path

import pytest
import typer.main

from fedtempo import errors
from fedtempo.algorithms import ALGORITHMS
from fedtempo.cli.commands import imported
from fedtempo.cli.main import INTERRUPTED, UNEXPECTED, USAGE, app
from fedtempo.config import parse
from fedtempo.trackers import TRACKERS
from tests import ROOT

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.S | re.M)
EXCERPT = re.compile(r"^```py source=(\S+)\n(.*?)^```", re.S | re.M)
SHELL = {"", "sh", "shell", "bash", "console"}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[str]:
    return [text for language, text in BLOCK.findall(page.read_text()) if language in languages]


def with_blocks(*languages: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, *languages)]


@pytest.mark.parametrize("page", with_blocks("python"), ids=name_of)
def test_code_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), scope)
    assert len(scope) > 1


@pytest.mark.parametrize("page", with_blocks("py"), ids=name_of)
def test_excerpts_are_the_source(page: Path) -> None:
    """A block that says which file it is from stands in that file, letter by letter."""
    for file, excerpt in EXCERPT.findall(page.read_text()):
        assert excerpt in (ROOT / "src" / "fedtempo" / file).read_text(), f"{file}:\n{excerpt}"


@pytest.mark.parametrize("page", with_blocks("toml"), ids=name_of)
def test_toml_blocks_are_experiments(page: Path) -> None:
    assert all(parse(tomllib.loads(block)).rounds >= 1 for block in blocks(page, "toml"))


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
    page, picture = (DOCS / "methods.md").read_text(), (DOCS / "images" / "methods.svg").read_text()
    rows = re.findall(r"^\| `(\w+)` \| .* \| `(src/fedtempo/algorithms/\w+\.py)` \|", page, re.MULTILINE)
    assert sorted(name for name, _ in rows) == sorted(ALGORITHMS)
    for name, file in rows:
        assert inspect.getsourcefile(inspect.unwrap(ALGORITHMS[name])) == str(ROOT / file)
        assert f">{name}</text>" in picture
    assert all((ROOT / file).exists() for file in re.findall(r"`(src/[\w/]+\.py)`", page))
    assert "images/methods.svg" in page


def test_the_algorithm_of_ones_own_is_short() -> None:
    (block,) = [text for text in blocks(DOCS / "your-own.md", "python") if "def averaged" in text]
    assert len(block.strip().splitlines()) < 40


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it; a warning is an error."""
    pytest.importorskip("material", reason="the documentation's tools are not here: pip install 'fedtempo[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # the theme's word about its own future, as in the Makefile
    built = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=300, env=quiet)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return folder


class Sources(HTMLParser):
    """What a page would fetch by itself, where its links go, and its anchors."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.anchors |= {values[key] for key in ("id", "name") if key in values}
        if tag == "a":
            self.links += [values["href"]] if "href" in values else []
            return
        refreshed = [values["content"]] if values.get("http-equiv", "").lower() == "refresh" else []
        self.fetched += [
            values[key] for key in ("src", "href", "srcset", "data", "poster") if key in values
        ] + refreshed


SITE = pytest.mark.slow("builds the whole site, as make docs does; links between its sources are followed every time")


@SITE
def test_the_site_fetches_nothing(site: Path) -> None:
    outside = [
        f"{page.relative_to(site)}: {source}"
        for page in site.rglob("*.html")
        for source in Sources(page).fetched
        if re.match(r"(https?:)?//", source)
    ]
    assert not outside
    styles = [
        sheet.name for sheet in site.rglob("*.css") if re.search(r"url\(['\"]?(https?:)?//|@import", sheet.read_text())
    ]
    assert not styles


@SITE
def test_the_links_of_the_site_resolve(site: Path) -> None:
    pages = {page.resolve(): Sources(page) for page in site.rglob("*.html")}
    broken = []
    for page, sources in pages.items():
        for link in [*sources.links, *sources.fetched]:
            target, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", link) or page.name == "404.html":
                continue
            place = (page.parent / target.partition("?")[0]).resolve() if target else page
            place = place / "index.html" if place.is_dir() else place
            lost = anchor and place in pages and anchor not in pages[place].anchors
            broken += [f"{page.name}: {link}"] if not place.exists() or lost else []
    assert not broken


@SITE
def test_formulas_are_drawn_and_examples_are_code(site: Path) -> None:
    paper = (site / "papers" / "feddecay.html").read_text()
    assert paper.count("<math") > 10
    assert "arithmatex" not in paper
    reference = (site / "api" / "schedules.html").read_text()
    assert "per_round" in reference
    assert "&gt;&gt;&gt;" in reference
    assert "<blockquote>" not in reference


@SITE
def test_every_page_is_in_the_site_and_can_be_searched(site: Path) -> None:
    import json

    missing = [page for page in DOCS.rglob("*.md") if not (site / page.relative_to(DOCS)).with_suffix(".html").exists()]
    assert not missing
    index = json.loads((site / "search" / "search_index.json").read_text())
    assert any("FedNAR" in entry["title"] for entry in index["docs"])
    assert (site / "search" / "search_index.js").exists()
