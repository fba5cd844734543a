"""A report of 82,000 jobs: written quickly, small, and opened at once in a browser without a network."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from machine_load import slowness
from report.histories import large_run
from rota.report.html import write_report

pytestmark = pytest.mark.slow
JOBS = 82_000
OPENS_S = 3.0


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    runs = [large_run(name, JOBS, 3) for name in ("fifo", "srtf", "las")]
    begun_s = time.monotonic()
    write_report(path, runs, "rota sim", {})
    assert time.monotonic() - begun_s < 20 * slowness()
    assert path.stat().st_size < 10_000_000
    return path


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A page without a network; errors and requests on it fail the test."""
    strange: list[str] = []
    made = chromium.new_context(offline=True, viewport={"width": 1280, "height": 800}).new_page()
    made.set_default_timeout(60_000)
    made.on("console", lambda message: strange.append(message.text) if message.type == "error" else None)
    made.on("pageerror", lambda error: strange.append(str(error)))
    made.on("request", lambda asked: strange.append(asked.url) if asked.url.startswith(("http", "ws")) else None)
    yield made
    made.context.close()
    assert strange == []


def drawing(within: Locator) -> Locator:
    """Return the drawing of Plotly within an element."""
    return within.locator("svg.main-svg .subplot").first


def test_it_opens_at_once_without_a_network(page: Page, report: Path) -> None:
    """Measured as processor time of the page, so that the load of the machine does not count."""
    inspector = page.context.new_cdp_session(page)
    inspector.send("Performance.enable", {"timeDomain": "threadTicks"})

    page.goto(report.as_uri())
    expect(drawing(page.locator("div.plot").first)).to_be_visible()

    metrics = inspector.send("Performance.getMetrics")["metrics"]
    spent_s = {each["name"]: each["value"] for each in metrics}["TaskDuration"]
    assert 0.1 < spent_s < OPENS_S


def test_every_figure_is_drawn_when_scrolled_into_view(page: Page, report: Path) -> None:
    page.goto(report.as_uri())
    folded = page.locator("details:not([open]) > summary")
    while folded.count():
        folded.first.click()

    plots = page.locator("div.plot").all()
    for plot in plots:
        plot.scroll_into_view_if_needed()
        expect(drawing(plot)).to_be_visible(timeout=30_000)

    assert len(plots) == 9
