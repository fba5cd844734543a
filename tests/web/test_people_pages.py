"""The pages that people keep open: home, sweeps, timeline, comparison, and the search box, in a real browser."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, TimeoutError, expect

from managers import Manager, eventually
from web.browsers import Window, window

pytestmark = pytest.mark.slow
Json = dict[str, Any]
TRAIN = """
import sys, time
import rota.sdk
run = rota.sdk.steps(range(60))
for batch in run:
    time.sleep(0.02)
    run.report(loss=float(sys.argv[1]) / (1 + run.step))
"""
LINES = "for i in 1 2 3 4; do echo step $i loss $ROTA_PARAM_X; sleep 0.05; done"


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    """A manager on which things have happened: two trainings, a failure, a wait, a held job, and a sweep."""
    made = Manager(tmp_path_factory.mktemp("people"), "--emulate", "gpu=8/4").start()
    script = made.folder / "train.py"
    script.write_text(TRAIN)
    first, second = (
        made.client.submit({"name": name, "run": [sys.executable, str(script), scale], "resources": {"gpus": gpus}})[0]
        for name, scale, gpus in (("gentle", "1", 1), ("steep", "5", 2))
    )
    broken = made.submit("echo gentle-words-of-output; exit 3", name="broken")
    texts = tmp_path_factory.mktemp("texts")
    made.client.put_data_set("corpus", {"path": str(texts), "about": "texts"})
    made.client.put_budget("thesis", {"tenant": "vision", "gpu_hours": 5})
    made.client.set_prices({"gpu": 2.0}, currency="EUR")
    values: dict[str, Any] = {
        "name": "grid",
        "parameters": {"x": {"uniform": [0.1, 0.9], "points": 6}, "kind": ["a"]},
        "sampler": "grid",
        "objective": {"log": "step {step} loss {value}"},
        "job": {"run": LINES, "resources": {"gpus": 1}},
    }
    sweep = made.client.start_sweep(values)["id"]
    for job_id, state in ((first, "succeeded"), (second, "succeeded"), (broken, "failed")):
        made.wait(job_id, state)
    eventually(lambda: made.client.sweep(sweep)["state"] == "finished")
    made.submit("sleep 900", name="keeps-all", resources={"gpus": 4}, workers=2)
    held = made.submit("sleep 1", name="held-back", resources={"gpus": 1})
    made.client.act(held, "hold")
    made.submit("sleep 1", name="queues", tenant="vision", resources={"gpus": 1})
    yield made
    made.clean_up()


@pytest.fixture(scope="module")
def desk(chromium: Browser, manager: Manager) -> Window:
    return window(chromium, manager)


def job_id(manager: Manager, name: str) -> str:
    return next(str(job["id"]) for job in manager.client.jobs(all=True) if job["name"] == name)


def section(page: Page, title: str) -> Any:
    return page.locator("section.card").filter(has=page.get_by_role("heading", name=title, exact=True))


def test_home_says_what_needs_the_visitor(desk: Window, manager: Manager) -> None:
    page = desk.go("/home")

    concerns = section(page, "Needs me")
    expect(concerns.get_by_role("link")).to_have_count(2)
    expect(concerns.get_by_role("link", name=re.compile("broken"))).to_contain_text("exit code 3")
    expect(concerns.get_by_role("link", name=re.compile("held-back"))).to_contain_text("release it")
    expect(section(page, "My jobs").get_by_role("link")).to_have_count(3)
    expect(section(page, "My sweeps").get_by_role("link")).to_contain_text("6 of 6 trials, best 0.1")
    concerns.get_by_role("link", name=re.compile("broken")).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("broken")
    manager.client.act(job_id(manager, "held-back"), "release")
    desk.go("/home")
    expect(section(page, "Needs me").get_by_role("link")).to_have_count(1)


def test_usage_is_that_of_the_accounts(desk: Window, manager: Manager) -> None:
    page = desk.go("/usage")
    used = {row["user"]: row["gpu_hours"] for row in manager.client.usage("user")["rows"]}

    def shown(table: str, row: str, column: int) -> str:
        cells = page.get_by_role("table", name=table).locator("tbody tr").filter(has_text=row).locator("td")
        return str(cells.nth(column).inner_text())

    eventually(lambda: float(shown("Usage", "local", 1)) >= round(used["local"], 3) - 0.001)
    assert float(shown("Usage", "local", 1)) < used["local"] + 0.5
    expect(page.get_by_role("table", name="Budgets").locator("tbody tr")).to_contain_text("0.00 of 5.00 GPU hours")
    assert 0 < float(shown("Fair shares", "local", 6)) <= 1
    expect(page.get_by_role("img", name="GPU hours over time").locator("svg")).to_contain_text("local")

    page.get_by_role("combobox", name="Groups").click()
    page.get_by_role("option", name="By tenant").click()
    page.wait_for_url("**/usage?span=month&by=tenant")
    page.get_by_role("textbox", name="Only this tenant").fill("vision")
    page.keyboard.press("Enter")
    page.wait_for_url("**/usage?span=month&by=tenant&tenant=vision")
    desk.go(page.url.removeprefix(manager.client.url))
    rows = page.get_by_role("table", name="Usage").locator("tbody tr")
    assert [row for row in rows.all_inner_texts() if not row.startswith("vision")] == []
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    assert download.value.path().read_text().splitlines()[0] in (
        "day,tenant,gpu_hours,cost,energy_kwh,jobs",
        "gpu_hours",
    )
    desk.go("/usage?span=nonsense&by=<b>&user=nobody")
    expect(page.get_by_text("Nothing was used in this time.")).to_be_visible()
    assert desk.errors == []


def test_a_sweep_is_drawn_and_its_best_trials_compared(desk: Window, manager: Manager) -> None:
    page = desk.go("/sweeps")
    row = page.get_by_role("table", name="Sweeps").locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("finished")
    expect(row).to_contain_text("6 of 6")
    row.get_by_role("link", name="grid").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("grid")
    trials = page.get_by_role("table", name="Trials").locator("tbody tr")
    expect(trials).to_have_count(6)
    expect(trials.first).to_contain_text("0.1")
    expect(trials.last).to_contain_text("0.9")
    drawn = page.get_by_role("img", name=re.compile("^Parallel coordinates"))
    expect(drawn.locator("svg")).to_be_visible()
    assert drawn.locator("svg path[stroke='var(--c1)']").count() == 1
    assert drawn.locator("svg path[stroke='var(--idle)']").count() == 1, "five of six are in colours"
    expect(section(page, "Importance").locator("svg")).to_contain_text("x")
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()

    page.get_by_role("button", name="Compare the best").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare")
    differ = page.get_by_role("table", name="Settings that differ")
    expect(differ.locator("tbody tr").filter(has_text="ROTA_PARAM_X")).to_contain_text("0.1")
    assert differ.locator("tbody tr").filter(has_text="ROTA_PARAM_KIND").count() == 0
    assert desk.errors == []


def test_jobs_are_compared_by_an_address_that_can_be_shared(desk: Window, manager: Manager) -> None:
    first, second = job_id(manager, "gentle"), job_id(manager, "steep")
    page = desk.go("/compare")
    expect(page.get_by_text("Name the jobs to compare.")).to_be_visible()
    page.get_by_role("textbox", name=re.compile("^Job ids")).fill(f"{first} {second}, 999")
    page.get_by_role("button", name="Compare", exact=True).click()

    expect(page.get_by_role("status").filter(has_text="There is no job 999")).to_be_visible()
    page.wait_for_url(f"**/compare?jobs={first},{second},999*")
    desk.go(page.url.removeprefix(manager.client.url))
    curves = page.get_by_role("img", name="A metric of each job by step")
    expect(curves.locator("svg")).to_contain_text("gentle")
    expect(curves.locator("svg")).to_contain_text("steep")
    gpus = page.get_by_role("table", name="Settings that differ").locator("tbody tr").filter(has_text="resources.gpus")
    expect(gpus.locator("td")).to_have_text(["1", "2"])
    expect(page.get_by_role("table", name="Use").locator("thead th")).to_have_count(2)


def test_the_timeline_shows_who_held_what_and_opens_it(desk: Window, manager: Manager) -> None:
    manager.wait(job_id(manager, "keeps-all"), "running")
    page = desk.go("/timeline?span=120")
    jobs = page.get_by_role("table", name="Jobs in this window")
    expect(jobs.locator("tbody tr").first).to_contain_text("keeps-all")
    expect(jobs.locator("tbody tr").first).to_contain_text("n1, n2")
    expect(jobs.locator("tbody tr").filter(has_text="queues")).to_have_count(1)
    canvas = page.get_by_role("img", name=re.compile("jobs from"))
    expect(canvas).to_be_visible()

    page.get_by_role("button", name="Zoom in").click()
    page.wait_for_url("**/timeline?span=60*")
    now_s = time.time()
    for _ in range(3):
        page.get_by_role("button", name="Earlier").click()
    page.wait_for_url(lambda url: float(parse_qs(urlsplit(url).query).get("to", ["inf"])[0]) < now_s - 60)
    shared = page.url.removeprefix(manager.client.url)
    desk.go(shared)
    expect(canvas).to_be_visible()
    page.get_by_role("button", name="Zoom out").click()
    page.wait_for_url("**/timeline?span=120*")
    assert parse_qs(urlsplit(page.url).query)["to"], "three windows of half a minute ago, the present is not in sight"
    page.get_by_role("button", name="Now").click()
    page.wait_for_url(lambda url: "to=" not in url)

    box = canvas.bounding_box()
    assert box is not None
    job_page = f"{manager.client.url}/jobs/{job_id(manager, 'keeps-all')}"

    def opened() -> bool:
        page.mouse.click(box["x"] + box["width"] - 4, box["y"] + 30)  # the first device of the first node, now
        with contextlib.suppress(TimeoutError):  # the chart is drawn again after the address has changed
            page.wait_for_url(job_page, timeout=2000)
        return page.url == job_page

    assert eventually(opened)
    assert desk.errors == []


def test_everything_is_found_by_keyboard(desk: Window, manager: Manager) -> None:
    page = desk.go("/tenants")
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name=re.compile("^Search jobs"))
    expect(field).to_be_focused()
    expect(page.get_by_role("option").first).to_contain_text("Overview")
    options = page.get_by_role("option")
    field.fill("steep")
    expect(options).to_have_count(1)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{job_id(manager, 'steep')}")

    desk.go("/tenants")
    page.keyboard.press("/")
    field.fill("grid")
    expect(options.filter(has_text="s1 grid")).to_have_count(1)
    expect(options.filter(has_text="grid-")).to_have_count(6)
    page.keyboard.press("ArrowUp")
    expect(options.last).to_have_attribute("aria-selected", "true")
    for text, kind, title in (
        ("gentle-words-of-output", "job", "broken"),
        ("ddp", "template", "pytorch-ddp"),
        ("corp", "data set", "corpus"),
        ("thes", "budget", "thesis"),
        ("compare", "page", "Compare"),
    ):
        field.fill(text)
        expect(options.filter(has_text=title).filter(has_text=kind)).to_have_count(1)
    field.fill("corp")
    page.keyboard.press("Enter")
    page.wait_for_url("**/data-sets")
    expect(page.get_by_role("table", name="Data sets").locator("tbody tr")).to_contain_text("ROTA_DATA_CORPUS")
    page.keyboard.press("/")
    expect(field).to_be_focused()
    page.keyboard.press("Escape")
    expect(field).to_be_hidden()
    page.get_by_role("button", name="Search").click()
    field.fill("vision")
    page.keyboard.press("Enter")  # at once: it waits for the answer
    page.wait_for_url("**/jobs?tenant=vision")
    for text, kind in (("n2", "node"), ("<img src=x onerror=alert(1)>", "")):
        page.keyboard.press("Control+k")
        field.fill(text)
        if kind:
            expect(options.filter(has_text=kind)).to_have_count(1)
        else:
            expect(page.get_by_role("dialog").get_by_role("status")).to_have_text("Nothing found.")
    assert desk.errors == []


def test_the_pages_fit_a_phone(chromium: Browser, manager: Manager) -> None:
    desk = window(chromium, manager, phone=True, scheme="dark")
    for path in (
        *("/home", "/sweeps", "/sweeps/s1", f"/compare?jobs={job_id(manager, 'steep')}", "/timeline"),
        *("/usage", "/data-sets"),
    ):
        page = desk.go(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    assert desk.errors == []
    assert desk.foreign_requests() == []


def test_reservations_stand_below_the_timeline(desk: Window, manager: Manager) -> None:
    node = manager.client.nodes()[0]["id"]
    moment = {"from": "2030-12-01T08:00:00Z", "for_s": 7200, "nodes": [node], "users": ["ada", "ben"]}
    manager.client.reserve("course", moment)
    try:
        row = desk.go("/timeline").get_by_test_id("reservations").get_by_role("row").nth(1)
        expect(row).to_contain_text("course")
        expect(row).to_contain_text("2 users")
        expect(row).to_contain_text("2030-12-01 08:00:00 UTC")
        expect(row).not_to_contain_text("ada")
    finally:
        manager.client.cancel_reservation("course")
    expect(desk.go("/timeline").get_by_test_id("reservations")).to_be_hidden()


def test_trials_that_fail_need_the_visitor_once(desk: Window, manager: Manager) -> None:
    job = {"run": "exit 1", "resources": {"gpus": 0}}
    values: Json = {"name": "doomed", "parameters": {"x": {"uniform": [0, 1]}}, "trials": 3, "job": job}
    sweep = manager.client.start_sweep(values)["id"]
    eventually(lambda: manager.client.sweep(sweep)["state"] != "running")

    concerns = section(desk.go("/home"), "Needs me").get_by_role("link")

    expect(concerns.filter(has_text="doomed")).to_have_count(1)
    expect(concerns.filter(has_text="doomed")).to_contain_text("3 trials of 3 failed")
