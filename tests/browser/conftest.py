"""Chromium as a reader has it, on a desk and on a phone, and what it says while a page opens."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.browser.pages import write_pages

SHOTS = Path(__file__).parents[2] / "browser-shots"
"""Where screenshots go; git ignores it, and the last line of `make test-browser` names it."""
SIZES = {"desk": (1280, 900, False), "phone": (390, 844, True)}
# Chromium paints no taller picture than this, and nobody looks at one.
TALLEST = 12_000
# Of the browser itself and not of the page.
OWN_SCHEMES = ("chrome:", "devtools:", "chrome-extension:")


@dataclass
class Opened:
    """What became of a page.

    Attributes:
        messages: What the console said.
        requests: Addresses that were asked for, the page itself aside.
        seconds: Processor time of its own thread: reading, laying out, painting, running its script. What a
            clock says on a machine that does other things besides says nothing of the page.
    """

    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Browser:
    """One Chromium for all pages."""

    def __init__(self) -> None:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        for switch in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
            options.add_argument(switch)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        options.binary_location = _program("chromium")
        self.driver: Any = webdriver.Chrome(options=options, service=Service(_program("chromedriver")))
        self.driver.set_page_load_timeout(300)

    def command(self, name: str, **parameters: Any) -> Any:
        """A command of the DevTools protocol."""
        return self.driver.execute_cdp_cmd(name, parameters)

    def open(self, page: Path, size: str = "desk", *, dark: bool = False, script: bool = True) -> Opened:
        """Open a page and wait until it is laid out."""
        width, height, mobile = SIZES[size]
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.command("Emulation.setScriptExecutionDisabled", value=not script)
        self._logs()
        self.command("Performance.enable", timeDomain="threadTicks")
        self.driver.get(page.as_uri())
        self.command("Page.getLayoutMetrics")
        figures = self.command("Performance.getMetrics")["metrics"]
        seconds = next(figure["value"] for figure in figures if figure["name"] == "TaskDuration")
        self.command("Performance.disable")
        messages, requests = self._logs()
        return Opened(messages, [url for url in requests if url != page.as_uri()], seconds)

    def shoot(self, name: str) -> None:
        """Put a picture of the whole page into the folder of screenshots."""
        content = self.command("Page.getLayoutMetrics")["cssContentSize"]
        clip = {
            "x": 0,
            "y": 0,
            "width": content["width"],
            "height": min(content["height"], TALLEST),
            "scale": 1,
        }
        shot = self.command("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        import base64

        (SHOTS / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))

    def _logs(self) -> tuple[list[str], list[str]]:
        messages = [entry["message"] for entry in self.driver.get_log("browser")]
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return messages, [url for url in sent if not url.startswith(OWN_SCHEMES)]


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.exit(f"{name} is not here: apt-get install chromium chromium-driver", returncode=2)
    return found


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    shutil.rmtree(SHOTS, ignore_errors=True)
    SHOTS.mkdir()
    started = Browser()
    yield started
    started.driver.quit()


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_pages(tmp_path_factory.mktemp("pages"))
