"""The page of forecasts against what happened, and the error bar of a what-if, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from live.truth.seeded import write_seeded
from managers import Manager, eventually
from rota.store.database import open_database
from rota.store.records import Records
from web.browsers import Window, window

pytestmark = pytest.mark.slow
LONG_MS = 90_000


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    """A manager with 300 scored forecasts of the last day, on which a few jobs ran."""
    made = Manager(tmp_path_factory.mktemp("truth"), "--emulate", "gpu=4/4", "--policy", "priority")
    made.home.mkdir(parents=True)
    records = Records(open_database(made.home / "rota.db"))
    write_seeded(records, 300)
    records.close()
    made.start(within_s=90)
    try:
        for number in range(5):
            made.submit("sleep 0.5", name=f"short-{number}", resources={"gpus": 4})
        eventually(lambda: not list(made.client.jobs()), within_s=60)
        yield made
    finally:
        made.clean_up()


@pytest.fixture(scope="module")
def desk(chromium: Browser, manager: Manager) -> Window:
    return window(chromium, manager)


def test_page_shows_coverage_errors_and_groups(desk: Window) -> None:
    page = desk.go("/truth")

    coverage = page.locator(".tile").filter(has_text="In the 90% range")
    expect(coverage.locator(".tile-value")).to_have_text(re.compile(r"\d+ %"))
    by_policy = page.get_by_role("table", name="By policy")
    expect(by_policy.get_by_role("row", name="fifo:backfill=true")).to_contain_text("%")
    expect(by_policy.get_by_role("row", name=re.compile(r"^priority \d"))).to_contain_text("%")
    expect(page.get_by_role("table", name="By horizon")).to_contain_text("1 to 10 min")
    assert desk.errors == []
    assert desk.foreign_requests() == []


def test_simulation_is_shown_beside_what_happened(desk: Window) -> None:
    page = desk.go("/truth")
    page.get_by_role("button", name="Simulate").click()

    table = page.get_by_role("table", name="Simulated against real")
    expect(table.get_by_role("row", name="Mean completion time")).to_contain_text("%", timeout=LONG_MS)
    expect(table).to_contain_text("Completion time of each job, median")


def test_explanation_without_forecasts_to_explain_says_so(desk: Window) -> None:
    """All scored forecasts are from before this manager started: its journal can't be replayed up to them."""
    page = desk.go("/truth")
    page.get_by_role("button", name="Explain").click()

    status = page.get_by_role("status").last
    expect(status).to_contain_text(re.compile("made again|no forecast of a start"), timeout=LONG_MS)


def test_what_if_carries_its_error_bar(desk: Window) -> None:
    page = desk.go("/what-if")
    page.get_by_label("Policy").fill("srtf")
    page.get_by_role("button", name="Compare").click()

    table = page.get_by_role("table", name="Comparison")
    expect(table).to_contain_text("Real", timeout=LONG_MS)
    expect(table.get_by_role("row", name="Mean completion time")).to_contain_text("±")
    expect(page.get_by_test_id("error-bar")).to_contain_text("5 jobs")
    assert desk.errors == []
