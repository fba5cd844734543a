"""Users' tasks on the dashboard, in a real browser against a real manager."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from managers import Manager, eventually
from web.browsers import Window, window

pytestmark = pytest.mark.slow
TRAINING = """
import time
import rota.sdk
run = rota.sdk.steps(range(30_000))
for batch in run:
    time.sleep(0.02)
    run.report(loss=1 / (2 + run.step))
"""
HOSTILE = "<img src=x onerror=window.hacked=1> <script>window.hacked=1</script>"


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    """A manager with eight devices on two nodes."""
    made = Manager(tmp_path_factory.mktemp("used"), "--emulate", "gpu=8/4").start()
    yield made
    made.clean_up()


@pytest.fixture(scope="module")
def desk(chromium: Browser, manager: Manager) -> Window:
    return window(chromium, manager)


def confirm(page: Page, verb: str) -> None:
    page.get_by_role("dialog").get_by_role("button", name=verb).click()


def test_a_job_is_submitted_by_form_watched_and_read(desk: Window, manager: Manager) -> None:
    page = desk.go("/submit")
    page.get_by_label("Name").fill("from-the-form")
    page.get_by_label("Command").fill("echo first line; sleep 1; echo second line; sleep 600")
    page.get_by_label("GPUs per task").fill("2")
    expect(page.get_by_label("Job file")).to_have_value(re.compile("name: from-the-form[^$]*gpus: 2"))

    page.get_by_role("button", name="Dry run").click()
    expect(page.get_by_role("status")).to_contain_text("would start")
    assert list(manager.client.jobs()) == []

    page.get_by_role("button", name="Submit").click()
    confirm(page, "Submit")
    expect(page.get_by_role("heading", level=1)).to_have_text("from-the-form")
    expect(page.locator(".page-head .chip")).to_have_text("running")
    expect(page.get_by_role("log")).to_contain_text("second line")
    page.get_by_label("Search output").fill("SECOND")
    expect(page.get_by_role("log").locator("mark")).to_have_text("second")
    expect(page.get_by_role("log")).not_to_contain_text("first line")
    expect(page.get_by_text("Running for")).to_contain_text("on n1")
    expect(page.locator(".map-device.mine")).to_have_count(2)
    expect(page.get_by_text("MiB, no request")).to_be_visible()


def test_the_form_follows_the_job_file(desk: Window) -> None:
    page = desk.go("/submit")
    page.get_by_label("Job file").fill(
        "name: written\nworkers: 3\nresources: {gpus: 2, gpu: [H100, A100]}\nrun: 'true'\n"
    )

    expect(page.get_by_label("Name")).to_have_value("written")
    expect(page.get_by_label("Tasks")).to_have_value("3")
    expect(page.get_by_label("GPU types, preferred first")).to_have_value("H100, A100")

    page.get_by_label("Job file").fill("name: [")
    expect(page.get_by_role("alert").filter(has_text="not YAML")).to_be_visible()
    page.get_by_label("Job file").fill("name: written\nworkers: 0\nrun: 'true'\n")
    page.get_by_role("button", name="Dry run").click()
    expect(page.get_by_role("status")).to_contain_text("workers")


@pytest.mark.parametrize("number", ["inf", "nan", "1e999", "many"])
def test_what_is_no_number_is_refused_and_not_left_out(desk: Window, number: str) -> None:
    page = desk.go("/submit")
    page.get_by_label("Tasks").fill(number)
    expect(page.get_by_label("Job file")).to_have_value(re.compile("workers: "))

    page.get_by_role("button", name="Dry run").click()
    expect(page.get_by_role("status")).to_contain_text("it must be a whole number")


BAR = """
import sys
print('first', flush=True)
for number in range(4000):
    sys.stdout.write('\\r%d %s' % (number, '#' * 100))
sys.stdout.flush()
import time; time.sleep(600)
"""


def test_a_progress_bar_is_one_line_that_does_not_grow(desk: Window, manager: Manager) -> None:
    job_id = manager.client.submit({"name": "bar", "run": [sys.executable, "-c", BAR]})[0]

    page = desk.go(f"/jobs/{job_id}")

    expect(page.get_by_role("log").locator(".log-line").last).to_contain_text("3999 #")
    assert len(page.get_by_role("log").inner_text()) < 200
    manager.client.act(job_id, "cancel")


def test_search_finds_output_from_before_the_tail(desk: Window, manager: Manager) -> None:
    command = "echo the NEEDLE in line one; seq 1 400000; echo a needle at the end; printf 'needle, unended'; sleep 600"
    job_id = manager.submit(command, name="talks")
    page = desk.go(f"/jobs/{job_id}")
    expect(page.get_by_role("log")).to_contain_text("needle, unended")
    assert "line one" not in page.get_by_role("log").inner_text()

    page.get_by_label("Search output").fill("Needle")

    expect(page.locator(".log-line")).to_have_text(["the NEEDLE in line one", "a needle at the end", "needle, unended"])
    expect(page.locator(".log-tools").get_by_role("status")).to_have_text("3 matching lines in the entire output")
    page.get_by_label("Search output").fill("absent")
    expect(page.locator(".log-tools").get_by_role("status")).to_have_text("0 matching lines in the entire output")
    manager.client.act(job_id, "cancel")


def test_a_training_loop_s_progress_is_drawn(desk: Window, manager: Manager) -> None:
    job_id = manager.client.submit({"name": "training", "run": [sys.executable, "-c", TRAINING]})[0]

    page = desk.go(f"/jobs/{job_id}")

    expect(page.get_by_text(re.compile(r"step \d+, .* steps/s, loss 0\.\d+"))).to_be_visible()
    expect(page.get_by_role("img", name="Metrics reported by the job, by step").locator("svg")).to_be_visible()
    manager.client.act(job_id, "cancel")


def test_a_waiting_job_shows_its_reason_and_expected_start(desk: Window, manager: Manager) -> None:
    manager.submit("sleep 600", name="large", resources={"gpus": 4})
    waiting = manager.submit("sleep 1", name="patient", resources={"gpus": 4})

    page = desk.go(f"/jobs/{waiting}")

    expect(page.get_by_test_id("reason")).to_have_text(
        "Needs 4 devices, 2 devices available now; starts when other jobs end."
    )
    expect(page.get_by_test_id("expected")).to_contain_text("Expected to start at")
    expect(page.get_by_test_id("expected")).to_contain_text("between")


def test_a_job_is_held_released_and_cancelled_once_confirmed(desk: Window, manager: Manager) -> None:
    job_id = manager.submit("sleep 1", name="victim", resources={"gpus": 8})
    page = desk.go(f"/jobs/{job_id}")

    page.get_by_role("button", name="Cancel").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    page.get_by_role("button", name="Cancel").click()
    confirm(page, "Back")
    page.get_by_role("button", name="Hold").click()
    confirm(page, "Hold job")
    expect(page.locator(".page-head .chip")).to_have_text("held")
    page.get_by_role("button", name="Release").click()
    confirm(page, "Release job")
    expect(page.locator(".page-head .chip")).to_have_text("waiting")
    page.get_by_role("button", name="Cancel").click()
    confirm(page, "Cancel job")
    expect(page.locator(".page-head .chip")).to_have_text("cancelled")

    actions = [(entry["what"], entry["who"]) for entry in manager.client.get("/audit") if entry["thing"] == job_id]
    assert actions == [("cancel", "local"), ("release", "local"), ("hold", "local"), ("submit", "local")]


def test_a_job_is_cloned_without_its_secrets(desk: Window, manager: Manager) -> None:
    job_id = manager.submit("true", name="original", env={"A": "1", "KEY": {"secret": "hush"}})
    page = desk.go(f"/jobs/{job_id}")
    assert "hush" not in page.content()

    page.get_by_role("button", name="Clone").click()

    expect(page.get_by_text("enter them again: KEY")).to_be_visible()
    expect(page.get_by_label("Job file")).to_have_value(re.compile("name: original"))
    assert "hush" not in page.get_by_label("Job file").input_value()


def test_a_node_is_drained_from_the_map(desk: Window, manager: Manager) -> None:
    page = desk.go("/cluster")
    page.get_by_role("button", name="n2:").click()
    confirm(page, "Drain")
    confirm(page, "Drain n2")
    eventually(lambda: [node["state"] for node in manager.client.nodes()] == ["up", "drained"])
    expect(page.get_by_role("button", name="n2:")).to_contain_text("drained")

    page.get_by_role("button", name="n2:").click()
    confirm(page, "Undrain")
    confirm(page, "Undrain n2")
    eventually(lambda: [node["state"] for node in manager.client.nodes()] == ["up", "up"])


def test_scenario_with_another_policy_and_more_nodes_is_compared(
    desk: Window, manager: Manager, tmp_path: Path
) -> None:
    for length in ("0.6", "0.2", "0.1"):
        manager.submit(f"sleep {length}", name=f"past-{length}", tenant="past")
    eventually(lambda: all(job["state"] == "succeeded" for job in manager.client.jobs(tenant="past", all=True)))
    page = desk.go("/what-if")
    page.get_by_label("Policy").fill("srtf")
    page.get_by_label("Additional gpu nodes").fill("2")
    page.get_by_role("button", name="Compare").click()

    table = page.get_by_role("table", name="Comparison")
    expect(table).to_contain_text(re.compile(r"priority[^ ]*, 8 devices"), timeout=60_000)
    expect(table).to_contain_text(re.compile(r"srtf[^ ]*, 16 devices"))
    expect(table.get_by_role("row", name="Mean completion time")).to_contain_text("s")
    assert len(manager.client.nodes()) == 2

    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')")
    page.get_by_label("Policy").fill(f"{trap}:policy")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("status")).to_contain_text("unknown policy")
    assert not (tmp_path / "sprung").exists()


def test_output_of_jobs_is_never_interpreted_as_markup(desk: Window, manager: Manager) -> None:
    job_id = manager.submit(f"echo '{HOSTILE}'; exit 3", name="hostile", env={"X": HOSTILE})
    eventually(lambda: manager.state(job_id) == "failed")

    page = desk.go(f"/jobs/{job_id}")
    expect(page.get_by_role("log")).to_contain_text("onerror")
    desk.go("/")
    expect(page.get_by_role("link", name="hostile")).to_be_visible()
    desk.go("/jobs?q=" + HOSTILE.replace(" ", "+"))

    assert page.evaluate("window.hacked") is None
    assert page.locator("img[src=x]").count() == 0


def test_no_errors_and_no_requests_to_other_hosts(desk: Window) -> None:
    assert desk.errors == []
    assert desk.foreign_requests() == []


def test_request_estimate_and_use_are_side_by_side(desk: Window, manager: Manager) -> None:
    job_id = manager.submit("sleep 0.5", name="measured", resources={"memory": "auto", "cpus": 0.5})
    manager.wait(job_id)

    page = desk.go(f"/jobs/{job_id}")

    table = page.get_by_test_id("compared")
    expect(table.get_by_role("row").filter(has_text="Memory")).to_contain_text("(auto)")
    expect(table.get_by_role("row").filter(has_text="Memory")).to_contain_text("MiB")
    expect(table.get_by_role("row").filter(has_text="CPUs")).to_contain_text("0.5")


def test_files_of_a_job_are_listed_and_downloaded(desk: Window, manager: Manager) -> None:
    run = "mkdir -p $ROTA_RUN_DIR/out; printf weights > $ROTA_RUN_DIR/out/model.bin; printf x > '$ROTA_RUN_DIR/a b'"
    job_id = manager.submit(run.replace("'", '"'))
    eventually(lambda: manager.client.job(job_id)["state"] == "succeeded")

    page = desk.go(f"/jobs/{job_id}")
    files = page.get_by_role("table", name="Files")
    expect(files.get_by_role("row")).to_have_count(3)
    with page.expect_download() as started:
        files.get_by_role("link", name="out/model.bin").click()

    assert started.value.suggested_filename == "model.bin"
    assert started.value.path().read_text() == "weights"


def test_a_job_is_submitted_from_a_template(desk: Window, manager: Manager) -> None:
    page = desk.go("/templates?name=pytorch-ddp")
    shown = page.get_by_role("region", name="Job file")
    expect(shown).to_contain_text("--lr 0.1")
    page.get_by_label("lr", exact=True).fill("fast")
    expect(page.get_by_role("alert").first).to_contain_text("lr is 'fast'; it must be a number")
    page.get_by_label("lr", exact=True).fill("0.25")
    page.get_by_label("script").fill("my train.py")
    expect(shown).to_contain_text("python 'my train.py' --epochs 10 --lr 0.25")

    page.get_by_role("button", name="Submit").click()
    confirm(page, "Submit")

    expect(page.get_by_role("heading", level=1)).to_have_text("pytorch-ddp")
    (job,) = manager.client.jobs(all=True, name="pytorch-ddp")
    spec = manager.client.job(job["id"])["spec"]
    assert (spec["workers"], spec["resources"]) == (2, {"gpus": 1})


def test_a_job_is_found_by_what_it_wrote(desk: Window, manager: Manager) -> None:
    job_id = manager.submit("echo diverged at step 1234", name="found-by-output")
    manager.submit("echo fine", name="not-found")
    eventually(lambda: manager.client.search("diverged 1234"))

    page = desk.go("/jobs?q=diverged+at")

    expect(page.get_by_role("link", name="found-by-output")).to_have_attribute("href", f"/jobs/{job_id}")
    expect(page.get_by_role("link", name="not-found")).to_have_count(0)
