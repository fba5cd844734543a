"""Every page in a real browser, with 10,000 jobs: quick, free of errors, and contacting its manager only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, expect

from machine_load import slowness
from managers import Manager
from web.browsers import Window, window

pytestmark = pytest.mark.slow
JOBS = 10_000
TENANTS = ("vision", "nlp", "speech")
PAGES = {
    "Overview": "/",
    "Jobs": "/jobs",
    "train-0": "/jobs/1",
    "train-9999": "/jobs/10000",
    "Cluster": "/cluster",
    "Tenants": "/tenants",
    "Usage": "/usage",
    "Data sets": "/data-sets",
    "What-if": "/what-if",
    "Truth": "/truth",
    "Submit": "/submit",
    "Audit log": "/audit-log",
}
LONGEST_S = 2.0
COUNT_S = 0.1


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    """A manager with 16 devices and 10,000 jobs."""
    made = Manager(tmp_path_factory.mktemp("crowded"), "--emulate", "gpu=16/4", "--tenants", ",".join(TENANTS)).start()
    crowd(made)
    yield made
    made.kill()  # cancelling the jobs one by one would take longer than the tests
    made.clean_up()


def crowd(manager: Manager) -> None:
    jobs = [
        {"name": f"train-{number}", "tenant": TENANTS[number % 3], "run": "sleep 600", "resources": {"gpus": 1}}
        for number in range(JOBS)
    ]
    manager.client.submit(jobs[: JOBS // 2])
    manager.client.submit(jobs[JOBS // 2 :])


@pytest.fixture(scope="module")
def desk(chromium: Browser, crowded: Manager) -> Window:
    return window(chromium, crowded)


def load_s(opened: Browser, manager: Manager, title: str) -> float:
    """Return how long a browser with an empty cache takes to show a page."""
    fresh = window(opened, manager)
    begun = time.monotonic()
    page = fresh.go(PAGES[title])
    expect(page.get_by_role("heading", level=1)).to_have_text(title)
    taken_s = time.monotonic() - begun
    assert fresh.errors == []
    assert fresh.foreign_requests() == []
    page.context.close()
    return taken_s


def is_quick(load: Callable[[], float]) -> bool:
    """Whether one of three loads is quick, given the load of the machine; `bench/pages.py` measures every load."""
    return any(load() < LONGEST_S * max(crowding(), slowness()) for _ in range(3))


def crowding() -> float:
    """Return the slowdown of a busy loop now, relative to an idle machine."""
    begun, until = time.monotonic(), time.process_time() + COUNT_S
    while time.process_time() < until:
        pass
    return max((time.monotonic() - begun) / COUNT_S, 1.0)


@pytest.mark.parametrize("title", PAGES)
def test_page_loads_quickly_and_without_complaint(chromium: Browser, crowded: Manager, title: str) -> None:
    assert is_quick(lambda: load_s(chromium, crowded, title))


def test_the_first_page_after_a_start_is_quick_too(chromium: Browser, crowded: Manager) -> None:
    def load_first_s() -> float:
        crowded.kill()
        crowded.start()
        return load_s(chromium, crowded, "Overview")

    assert is_quick(load_first_s)


def test_jobs_are_searched_sorted_and_paged_by_the_server(desk: Window) -> None:
    page = desk.go("/jobs")
    expect(page.get_by_role("status")).to_have_text("10,000 jobs")
    rows = page.locator("tbody tr")
    expect(rows.first).to_contain_text("train-9999")
    expect(rows).to_have_count(50)

    page.get_by_role("button", name="Older").click()
    expect(rows.first).to_contain_text("train-9949")

    page.get_by_role("columnheader", name="Job").get_by_role("button").click()
    expect(rows.first).to_contain_text("train-0")

    page.get_by_label("Search by name, owner or ID").fill("train-12")
    expect(page.get_by_role("status")).to_have_text("111 jobs")
    page.wait_for_url("**/jobs?q=train-12*")
    desk.go(page.url.removeprefix(desk.manager.client.url))
    expect(page.get_by_role("status")).to_have_text("111 jobs")


def test_a_filter_shows_states_as_words(desk: Window) -> None:
    page = desk.go("/jobs?state=running")

    expect(page.get_by_role("status")).to_have_text("16 jobs")
    expect(page.locator("tbody .chip").first).to_have_text("running")
