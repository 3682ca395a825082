"""The site of `make docs`: no warning, no network; every link leads on and every public name is there."""

from __future__ import annotations

import inspect
import re
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest

import fedtempo as ft
from fedtempo import public_names
from tests import ROOT
from tests.site import build_site

DOCS = ROOT / "docs"
pytestmark = pytest.mark.slow(
    "builds the whole site, as make docs does; links between its sources are followed every time"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_site(tmp_path_factory.mktemp("site"))


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


def test_the_links_of_the_site_resolve(site: Path) -> None:
    pages = {page.resolve(): Sources(page) for page in site.rglob("*.html")}
    broken = []
    for page, sources in pages.items():
        for link in [*sources.links, *sources.fetched]:
            target, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", link):
                continue
            place = (page.parent / target.partition("?")[0]).resolve() if target else page
            place = place / "index.html" if place.is_dir() else place
            lost = anchor and place in pages and anchor not in pages[place].anchors
            broken += [f"{page.name}: {link}"] if not place.exists() or lost else []
    assert not broken


def test_formulas_are_drawn_and_examples_are_code(site: Path) -> None:
    paper = (site / "papers" / "feddecay.html").read_text()
    assert paper.count("<math") > 10
    assert "\\frac" not in paper
    reference = (site / "api" / "schedules.html").read_text()
    assert "per_round" in reference
    assert "&gt;&gt;&gt;" in reference
    assert "<blockquote>" not in reference


def test_every_page_is_in_the_site_and_can_be_searched(site: Path) -> None:
    missing = [page for page in DOCS.rglob("*.md") if not (site / page.relative_to(DOCS)).with_suffix(".html").exists()]
    assert not missing
    index = (site / "searchindex.js").read_text()
    assert "fednar" in index.lower()
    assert (site / "search.html").exists()


def test_every_public_name_is_documented_with_types(site: Path) -> None:
    from sphinx.util.inventory import InventoryFile

    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="")
    known = {name for kind in inventory.data for name in inventory.data[kind]}
    modules = [thing for name in public_names.__all__ if inspect.ismodule(thing := getattr(ft, name))]
    wanted = {f"fedtempo.{name}": getattr(ft, name) for name in public_names.__all__}
    wanted |= {f"{each.__name__}.{name}": getattr(each, name) for each in modules for name in names_of(each)}
    homes = ["fedtempo", *(each.__name__ for each in modules)]  # a name that is public twice is described once
    missing = [
        name
        for name, thing in wanted.items()
        if is_described(thing) and known.isdisjoint(f"{home}.{name.rpartition('.')[2]}" for home in homes)
    ]
    assert len(wanted) > 200
    assert missing == []


def names_of(module: ModuleType) -> list[str]:
    own = [name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__]
    return getattr(module, "__all__", [name for name in own if not name.startswith("_")])


def is_described(thing: object) -> bool:
    """Functions and classes of ours. Registries, constants and aliases of types say what they are in the text."""
    ours = str(getattr(thing, "__module__", "")).startswith("fedtempo")
    return ours and (inspect.isfunction(thing) or inspect.isclass(thing))
