from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from web.browsers import browser

expect.set_options(timeout=60_000)  # as long as a window waits; five seconds are short on a busy machine


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for all tests of a module."""
    with browser() as opened:
        yield opened
