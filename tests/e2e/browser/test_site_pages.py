"""The documentation in a real browser: pages fit a phone, links lead on, nothing is fetched, search and dark work."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from tests.e2e.browser.conftest import Browser
from tests.site import build_site

pytestmark = pytest.mark.slow(
    "sphinx builds for seconds; links between the sources are followed, and reports opened in the browser, every time"
)
PHONE = 390
FEW = ("index", "install", "tutorial", "methods", "how-to/own-data")
REST = ("api", "coming-from", "errors", "papers", "results", "how-to/[c-n]*", "how-to/own-[a-c]*", "how-to/own-[l-o]*")
OTHERS = ("[b-f]*.md", "g*.md", "[n-s]*.md", "tr*.md", "tune.md", "w*.md", "a*.md", "ch*.md")
LINKS = "return [...document.querySelectorAll('a[href]')].map(a => a.href)"
PAINT = "return getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_site(tmp_path_factory.mktemp("few"), without=(*REST, *OTHERS))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_site(tmp_path_factory.mktemp("site"))


def visited(browser: Browser, page: Path) -> list[str]:
    """Open a page; it must fit a phone, say nothing on the console and fetch nothing. Its links within the site."""
    for kind in ("browser", "performance"):
        browser.driver.get_log(kind)
    browser.driver.get(page.as_uri())
    assert browser.js("return document.documentElement.scrollWidth") <= PHONE, page
    assert browser.errors() == [], page
    assert browser.requests() == [], page
    return [link for link in browser.js(LINKS) if link.startswith("file:")]


def test_a_few_pages_fit_a_phone(browser: Browser, few: Path) -> None:
    browser.look(PHONE, 844)
    assert all(visited(browser, few / f"{name}.html") for name in FEW)


def test_dark_follows_the_system_and_the_button(browser: Browser, few: Path) -> None:
    browser.look(1280)
    browser.driver.get((few / "index.html").as_uri())
    light = browser.js(PAINT)
    browser.look(1280, scheme="dark")
    browser.until(lambda: browser.js(PAINT) != light)
    browser.click(".content-icon-container .theme-toggle")
    assert browser.js("return document.body.dataset.theme") in ("light", "dark", "auto")


def test_search_finds_a_page(browser: Browser, few: Path) -> None:
    browser.look(1280)
    browser.driver.get(f"{(few / 'search.html').as_uri()}?q=visits")
    browser.until(lambda: any("own data" in found.text for found in browser.all("#search-results li a")))


def test_every_page_is_reached_by_links_and_fits_a_phone(browser: Browser, site: Path) -> None:
    browser.look(PHONE, 844)
    waiting, seen = [site / "index.html"], set()
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        assert page.is_file(), page
        if page.suffix == ".html":
            targets = [
                Path(unquote(urldefrag(link).url.partition("?")[0].removeprefix("file://")))
                for link in visited(browser, page)
            ]
            waiting += [target for target in targets if target not in seen]
    assert {
        page for page in site.rglob("*.html") if page.name not in ("search.html", "genindex.html", "py-modindex.html")
    } <= seen
