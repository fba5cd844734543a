"""A real browser for tests: headless Chromium, with a record of its errors and requests."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from managers import Manager

NAMES = ("chromium", "chromium-browser", "google-chrome")
INSTALL_S = 600


@functools.cache
def _found_or_installed() -> str | None:
    """Return the path of Chromium, installing it once if possible, with new lists of packages if need be."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        wait = ("-o", f"DPkg::Lock::Timeout={INSTALL_S // 2}")  # another program may be installing
        install = ["apt-get", *wait, "install", "-y", "--no-install-recommends", "chromium"]
        for command in (install, ["apt-get", *wait, "update"], install):
            subprocess.run(command, capture_output=True, timeout=INSTALL_S, check=False)
            found = shutil.which("chromium")
            if found is not None:
                break
    return found


def chromium() -> str:
    """Return the path of Chromium, installing it if possible; otherwise skip the test with the reason."""
    found = _found_or_installed()
    if found is None:
        pytest.skip("Chromium is not installed and can't be installed here; on Debian: apt-get install chromium")
    return found


@dataclass(slots=True)
class Window:
    """One page of a browser, with its errors and requests."""

    manager: Manager
    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def go(self, path: str) -> Page:
        """Open a page of the dashboard and wait until it is live."""
        self.page.goto(self.manager.client.url + path)
        self.page.wait_for_function("window.did_handshake === true || !!document.querySelector('.login')")
        return self.page

    def foreign_requests(self) -> list[str]:
        """Return the requests to hosts other than the manager."""
        own = urlsplit(self.manager.client.url).netloc
        return [url for url in self.requests if not url.startswith(("data:", "blob:")) and urlsplit(url).netloc != own]


@contextmanager
def browser() -> Iterator[Browser]:
    """Launch a browser, and close it afterwards."""
    path = chromium()
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        try:
            yield opened
        finally:
            opened.close()


def window(
    opened: Browser, manager: Manager, *, phone: bool = False, scheme: Literal["light", "dark"] = "light"
) -> Window:
    """Open a new window without cookies."""
    size: Any = {"width": 390, "height": 844} if phone else {"width": 1280, "height": 800}
    page = opened.new_context(viewport=size, color_scheme=scheme).new_page()
    page.set_default_timeout(60_000)
    made = Window(manager, page)
    page.on("console", lambda message: made.errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: made.errors.append(str(error)))
    network = page.context.new_cdp_session(page)
    network.send("Network.enable")
    network.on("Network.requestWillBeSent", lambda event: made.requests.append(event["request"]["url"]))
    network.on("Network.webSocketCreated", lambda event: made.requests.append(event["url"]))
    return made
