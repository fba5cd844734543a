"""Pages of jobs in a real browser: opened from the job's page, and hostile ones that try to act as their visitor."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from managers import Manager, eventually
from web.browsers import window

pytestmark = pytest.mark.slow
attack = pytest.mark.attack
SERVER = Path(__file__).parent.parent / "e2e" / "page_server.py"
FETCH = """async ([url, mode, method, headers]) => {
  try {
    const answer = await fetch(url, {mode, method, headers, credentials: 'include'});
    return [answer.type, answer.status, await answer.text()];
  } catch (error) { return ['failed', 0, '']; }
}"""
SOCKET = """(url) => new Promise(done => {
  const opened = new WebSocket(url);
  opened.onopen = () => opened.send('typed');
  opened.onmessage = message => done(message.data);
  opened.onerror = () => done('refused');
})"""
FRAME = """(url) => new Promise(done => {
  const frame = document.createElement('iframe');
  frame.src = url;
  frame.onload = () => {
    try { done(frame.contentDocument.body.innerText); } catch (error) { done('apart'); }
  };
  document.body.append(frame);
  setTimeout(() => done('nothing'), 3000);
})"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    """A manager that requires tokens, with two jobs that serve pages."""
    options = ("--emulate", "gpu=4/2", "--require-token")
    made = Manager(tmp_path_factory.mktemp("pages"), *options).start_guarded()
    for name in ("first", "second"):
        made.submit(f"exec {sys.executable} {SERVER}", name=name)
    yield made
    made.clean_up()


def port_of(manager: Manager, job_id: str) -> str:
    found: list[str] = eventually(lambda: re.findall(r"port (\d+)", manager.said(job_id)))
    return found[0]


def at_home(manager: Manager, path: str) -> str:
    """An address of the manager by the name of which those of jobs are children."""
    return f"http://localhost:{urlsplit(manager.client.url).port}{path}"


def logged_in(chromium: Browser, manager: Manager) -> Page:
    page = window(chromium, manager).page
    page.goto(at_home(manager, "/"))
    page.get_by_label("Token").fill(manager.token)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_selector("h1:has-text('Overview')")
    return page


def opened(page: Page, manager: Manager, job_id: str) -> Page:
    """Open what a job serves from its page, in another window."""
    page.goto(at_home(manager, f"/jobs/{job_id}"))
    with page.context.expect_page() as found:
        page.get_by_role("link", name="Open page").click()
    found.value.wait_for_url("**//j-*/")
    expect(found.value.get_by_role("heading", level=1)).to_have_text("a page of the job")
    return found.value


def test_page_of_a_job_opens_by_name_and_by_port(chromium: Browser, guarded: Manager) -> None:
    page = logged_in(chromium, guarded)
    theirs = opened(page, guarded, "1")
    assert theirs.evaluate(SOCKET, f"ws://{urlsplit(theirs.url).netloc}/socket") == "typed"
    theirs.reload()
    expect(theirs.get_by_role("heading", level=1)).to_have_text("a page of the job")
    page.get_by_label("Port", exact=True).fill(port_of(guarded, "1"))
    with page.context.expect_page() as found:
        page.get_by_role("button", name="Open", exact=True).click()
    expect(found.value.get_by_role("heading", level=1)).to_have_text("a page of the job")
    assert urlsplit(found.value.url).netloc not in (urlsplit(theirs.url).netloc, urlsplit(page.url).netloc)


@attack(
    "serves a page whose scripts use the visitor's login: calls the API, sends forms, opens sockets, frames pages",
    stopped_by="its origin is another one than the manager's, whose cookies and answers it never gets",
)
def test_hostile_page_can_not_act_as_its_visitor(chromium: Browser, guarded: Manager) -> None:
    page = logged_in(chromium, guarded)
    theirs = opened(page, guarded, "1")
    home = at_home(guarded, "")
    token = {"Authorization": "Bearer x"}
    for path in ("/api/v1/jobs", "/jobs/2", "/audit-log", "/proxy/2/page/", "/metrics"):
        for mode, method, headers in (("cors", "GET", {}), ("no-cors", "GET", {}), ("cors", "GET", token)):
            kind, status, text = theirs.evaluate(FETCH, [home + path, mode, method, headers])
            assert (kind in ("failed", "opaque"), status, text) == (True, 0, ""), (path, mode)
    for path in ("/api/v1/jobs/2/cancel", "/logout", "/login"):
        theirs.evaluate(FETCH, [home + path, "no-cors", "POST", {}])
    assert guarded.state("2") == "running"
    for path in ("/_nicegui_ws/socket.io/?EIO=4&transport=websocket", "/api/v1/jobs/2/session?mode=exec"):
        assert theirs.evaluate(SOCKET, home.replace("http", "ws") + path) == "refused"
    assert theirs.evaluate(FRAME, f"{home}/jobs/2") in ("apart", "nothing")
    assert theirs.evaluate("window.opener") is None
    kind, _, text = theirs.evaluate(FETCH, ["/api/v1/jobs", "cors", "GET", {}])
    assert (kind, '"path": "/api/v1/jobs"' in text) == ("basic", True)  # its own server, not the manager
    page.goto(f"{home}/jobs/2")
    expect(page.get_by_role("heading", level=1)).to_have_text("second")  # still logged in


@attack(
    "serves a page whose scripts reach the pages of another job that its visitor has open",
    stopped_by="each job and port has an origin of its own",
)
def test_hostile_page_reaches_no_other_job(chromium: Browser, guarded: Manager) -> None:
    page = logged_in(chromium, guarded)
    theirs, other = opened(page, guarded, "1"), opened(page, guarded, "2")
    target = f"http://{urlsplit(other.url).netloc}"
    for mode, method in (("cors", "GET"), ("no-cors", "GET"), ("no-cors", "POST")):
        kind, status, text = theirs.evaluate(FETCH, [f"{target}/told", mode, method, {}])
        assert (kind in ("failed", "opaque"), status, text) == (True, 0, "")
    assert theirs.evaluate(SOCKET, target.replace("http", "ws") + "/socket") == "refused"
    assert theirs.evaluate(FRAME, f"{target}/") in ("apart", "nothing")
    assert other.evaluate(FETCH, [f"{target}/told", "cors", "GET", {}])[1] == 200


@attack(
    "sets cookies for all hosts below or above its own, so that the visitor acts in another login",
    stopped_by="browsers take no cookies for a domain like localhost; over TLS the session's cookie can't be set so",
)
def test_cookies_of_a_hostile_page_change_no_login(chromium: Browser, guarded: Manager) -> None:
    page = logged_in(chromium, guarded)
    theirs = opened(page, guarded, "1")
    theirs.evaluate(
        """() => { for (const domain of ['localhost', '.localhost', ''])
        for (let n = 0; n < 3; n++) document.cookie = `rota_session=${n}; path=/; domain=${domain}`;
        for (let n = 0; n < 200; n++) document.cookie = `fill${n}=x; path=/`; }"""
    )
    kept = [each for each in page.context.cookies(at_home(guarded, "/")) if each["name"] == "rota_session"]
    assert [each["domain"] for each in kept] == ["localhost"]
    page.goto(at_home(guarded, "/jobs/2"))
    expect(page.get_by_role("heading", level=1)).to_have_text("second")
