"""A real chromium, headless, that keeps what its console said and what it asked the network for."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import PATIENCE


class Browser:
    """A thin layer over the driver: what the tests of the pages do, in their words."""

    def __init__(self, driver: Any, downloads: Path) -> None:
        self.driver, self.downloads = driver, downloads

    def open(self, address: str | Path) -> float:
        """Open a page and return how many seconds it took until everything was drawn."""
        for kind in ("browser", "performance"):
            self.driver.get_log(kind)
        began = time.perf_counter()
        self.driver.get(address.as_uri() if isinstance(address, Path) else address)
        self.until(lambda: self.js("return document.documentElement.dataset.ready") == "yes")
        return time.perf_counter() - began

    def hurry(self, times: int) -> None:
        """Pages that are opened from now on wait so many times shorter, such as for the next look at a run."""
        script = f"const wait = setTimeout; window.setTimeout = (what, time) => wait(what, time / {times});"
        self.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})

    def js(self, code: str, *arguments: Any) -> Any:
        return self.driver.execute_script(code, *arguments)

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements("css selector", selector)

    def one(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def click(self, selector: str) -> None:
        self.js("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", selector)
        self.one(selector).click()

    def until(self, holds: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        """Wait until something is so. A page that is being drawn anew has elements that are gone when looked at."""
        from selenium.common.exceptions import WebDriverException

        end = time.monotonic() + seconds
        while True:
            with suppress(WebDriverException):
                if answer := holds():
                    return answer
            assert time.monotonic() < end, "it did not come to be in time"
            time.sleep(0.05)

    def errors(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] != "INFO"]

    def requests(self) -> list[str]:
        """Addresses asked for since the page was opened, but for files and what is inside the page."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]

    def look(self, width: int, height: int = 900, scheme: str = "light", medium: str = "screen") -> None:
        """The size of the window, light or dark, screen or print."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        media = {"media": medium, "features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install -e '.[dev]'")
    binary, driver_binary = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver_binary is None:
        pytest.skip("chromium and chromedriver are not here: make system installs them")
    downloads = tmp_path_factory.mktemp("downloads")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # chromium's sandbox does not work for root
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver_binary))
    try:
        driver.set_script_timeout(PATIENCE)
        made = Browser(driver, downloads)
        made.look(1280)
        yield made
    finally:
        driver.quit()
