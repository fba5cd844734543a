"""The terminal on a job's page in a real browser: keys, Ctrl-C, the window's size, and who may open one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from managers import Manager, eventually
from web.browsers import window

pytestmark = pytest.mark.slow
attack = pytest.mark.attack


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    """A manager that requires tokens, with a job that runs."""
    options = ("--emulate", "gpu=4/2", "--require-token")
    made = Manager(tmp_path_factory.mktemp("terminal"), *options).start_guarded()
    made.submit("exec sleep 1000", name="ours", tenant="nlp", resources={"gpus": 1})
    yield made
    made.clean_up()


def logged_in(chromium: Browser, manager: Manager, secret: str) -> Page:
    desk = window(chromium, manager)
    desk.go("/")
    desk.page.get_by_label("Token").fill(secret)
    desk.page.get_by_role("button", name="Log in").click()
    desk.page.wait_for_selector("h1:has-text('Overview')")
    desk.go("/jobs/1")
    return desk.page


def on_screen(page: Page) -> str:
    """What the terminal shows."""
    return str(page.evaluate("document.querySelector('.xterm-rows')?.innerText ?? ''")).replace("\xa0", " ")


def processes(seconds: str) -> list[Path]:
    """The processes that sleep for so long."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if each.read_bytes() == f"sleep\0{seconds}\0".encode():
                found.append(each)
    return found


def typed(page: Page, text: str) -> None:
    page.keyboard.type(text)
    page.keyboard.press("Enter")


def test_shell_beside_a_task_is_used_in_the_browser(chromium: Browser, guarded: Manager) -> None:
    page = logged_in(chromium, guarded, guarded.token)
    page.get_by_role("button", name="Open a shell").click()
    expect(page.get_by_text("Connected: a shell beside the task")).to_be_visible()
    page.locator(".terminal-screen").click()

    typed(page, "PS1='> '; echo job $ROTA_JOB_ID devices ${CUDA_VISIBLE_DEVICES}.")
    eventually(lambda: "job 1 devices 0." in on_screen(page))
    typed(page, "sleep 1000; echo ended")
    typed(page, "echo not yet")
    page.keyboard.press("Control+c")
    typed(page, "echo $((40 + 2)) after")
    eventually(lambda: "42 after" in on_screen(page))

    def size() -> tuple[str, str]:
        typed(page, "stty size | tr ' ' x")
        found = eventually(lambda: re.findall(r"\b(\d+)x(\d+)\b", on_screen(page)))
        return str(found[-1][0]), str(found[-1][1])

    before = size()
    page.set_viewport_size({"width": 700, "height": 800})
    eventually(lambda: size() != before)
    typed(page, "exit 7")
    expect(page.get_by_text("The shell has ended with status 7.")).to_be_visible()
    page.get_by_role("button", name="Open a shell").click()
    expect(page.get_by_text("Connected: a shell beside the task")).to_be_visible()
    done = [(each["who"], each["what"]) for each in guarded.client.audit(20)]
    assert done.count(("first", "session-exec")) == 2
    page.locator(".terminal-screen").click()
    typed(page, "exec sleep 4321")
    eventually(lambda: processes("4321"))
    page.goto(f"{guarded.client.url}/jobs")  # leaving the page ends the shell
    eventually(lambda: not processes("4321"))


@attack("opens a terminal on the page of a colleague's job", stopped_by="the rights of `rota exec`, for each socket")
@attack("keeps a terminal in the browser after its login was revoked", stopped_by="the session ends within a second")
def test_terminal_needs_the_right_to_the_job(chromium: Browser, guarded: Manager) -> None:
    open_socket = """path => new Promise(done => {
      const opened = new WebSocket(`ws://${location.host}${path}`);
      opened.onopen = () => done('opened');
      opened.onerror = () => done('refused');
    })"""
    made = {}
    for name, role, tenant in (("bob", "member", "nlp"), ("vic", "viewer", "nlp"), ("mia", "maintainer", "nlp")):
        made[name] = guarded.client.post("/tokens", {"name": name, "role": role, "tenants": [tenant]})
    for name in ("bob", "vic"):
        page = logged_in(chromium, guarded, made[name]["token"])
        assert page.get_by_role("button", name="Open a shell").count() == 0
        assert page.evaluate(open_socket, "/jobs/1/session?mode=exec") == "refused"
    stranger = window(chromium, guarded).page
    stranger.goto(f"{guarded.client.url}/login")
    assert stranger.evaluate(open_socket, "/jobs/1/session?mode=exec") == "refused"

    page = logged_in(chromium, guarded, made["mia"]["token"])
    page.get_by_role("button", name="Open a shell").click()
    expect(page.get_by_text("Connected: a shell beside the task")).to_be_visible()
    page.locator(".terminal-screen").click()
    typed(page, "exec sleep 5432")
    eventually(lambda: processes("5432"))
    guarded.client.delete(f"/tokens/{made['mia']['id']}")
    eventually(lambda: not processes("5432"))
