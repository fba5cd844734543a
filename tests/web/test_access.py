"""Access to pages and actions with tokens and cookies, and refusals of requests from other sites."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, expect

from managers import Manager, eventually
from rota.sdk.client import Client
from web.browsers import Window, window

pytestmark = pytest.mark.slow
FORM = "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    """A manager that requires tokens."""
    options = ("--emulate", "gpu=4/2", "--require-token")
    made = Manager(tmp_path_factory.mktemp("guarded"), *options).start_guarded()
    made.submit("sleep 120", name="ours", tenant="vision", resources={"gpus": 1})
    made.submit("sleep 120", name="theirs", tenant="nlp", resources={"gpus": 1})
    yield made
    made.clean_up()


def token(manager: Manager, role: str, *tenants: str) -> tuple[str, str]:
    made = manager.client.post("/tokens", {"name": f"{role}-of-{'-'.join(tenants)}", "role": role, "tenants": tenants})
    return made["id"], made["token"]


def log_in(desk: Window, secret: str) -> None:
    desk.go("/")
    desk.page.get_by_label("Token").fill(secret)
    desk.page.get_by_role("button", name="Log in").click()
    desk.page.wait_for_selector("h1:has-text('Overview')")


Answer = tuple[int, dict[str, str], str]


def ask(manager: Manager, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
    place = urlsplit(manager.client.url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=20)
    try:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body=body, headers=given)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()
    finally:
        connection.close()


def test_a_viewer_looks_and_finds_no_button(chromium: Browser, guarded: Manager) -> None:
    _, secret = token(guarded, "viewer", "vision")
    desk = window(chromium, guarded)
    log_in(desk, secret)
    page = desk.page
    assert secret not in page.url

    ours, theirs = (job["id"] for job in sorted(guarded.client.jobs(), key=lambda job: str(job["name"])))
    for path in ("/", "/jobs", f"/jobs/{ours}", "/cluster", "/tenants", "/submit", "/what-if", "/truth", "/audit-log"):
        desk.go(path)
        assert page.get_by_role("table", name="Audit log").count() == 0
        for name in ("Cancel", "Hold", "Release", "Clone", "Submit", "Submit a job", "Dry run", "Compare"):
            assert page.get_by_role("button", name=name, exact=True).count() == 0, (path, name)
        for name in ("Submit", "Audit"):
            assert page.get_by_role("link", name=name).count() == 0
    desk.go("/jobs")
    expect(page.get_by_role("status")).to_have_text("1 job")
    desk.go(f"/jobs/{theirs}")
    expect(page.get_by_role("heading", level=1)).to_have_text("No such job")
    desk.go("/cluster")
    assert "theirs" not in page.content()
    page.get_by_role("button", name="n1:").click()
    expect(page.get_by_role("dialog").get_by_role("button")).to_have_text(["Close"])
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    assert desk.errors == []

    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()


@pytest.mark.attack(
    "looks for what other tenants use, their budgets, data sets and output on the pages and in the search box",
    stopped_by="pages and the search box show what is of own tenants",
)
def test_usage_budgets_data_and_output_of_other_tenants_are_not_shown(
    chromium: Browser, guarded: Manager, tmp_path: Path
) -> None:
    _, secret = token(guarded, "viewer", "robotics")
    guarded.client.put_budget("their-budget", {"tenant": "nlp", "gpu_hours": 5})
    guarded.client.put_data_set("their-texts", {"path": str(tmp_path), "tenants": ["nlp"]})
    spoken = guarded.submit("echo nobody-elses-words", name="speaks", tenant="nlp")
    guarded.wait(spoken, "succeeded")
    eventually(lambda: list(guarded.client.search("nobody-elses-words")))
    desk = window(chromium, guarded)
    log_in(desk, secret)
    page = desk.page

    for path in ("/usage?tenant=nlp&by=tenant", "/usage?by=tenant&span=year", "/data-sets", "/home"):
        desk.go(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        for theirs in ("nlp", "their-budget", "their-texts"):
            assert page.get_by_role("main").last.get_by_text(theirs).count() == 0, (path, theirs)
    for text in ("their", "nobody-elses-words", "speaks"):
        page.keyboard.press("Control+k")
        page.get_by_role("combobox", name=re.compile("^Search")).fill(text)
        expect(page.get_by_role("dialog").get_by_role("status")).to_have_text("Nothing found.")
        page.keyboard.press("Escape")
    assert desk.errors == []


@pytest.mark.attack(
    "looks for other tenants' jobs on the map of devices", stopped_by="pages show the jobs of own tenants"
)
def test_the_map_does_not_name_other_tenants_jobs(chromium: Browser, guarded: Manager) -> None:
    _, secret = token(guarded, "viewer", "robotics")
    own = guarded.submit("sleep 120", name="half-ours", tenant="robotics", resources={"gpus": 0.5})
    hidden = guarded.submit("sleep 120", name="half-theirs", tenant="nlp", resources={"gpus": 0.5})
    for job_id in (own, hidden):
        guarded.wait(job_id, "running")
    desk = window(chromium, guarded)
    log_in(desk, secret)

    for path in (f"/jobs/{own}", "/cluster"):
        page = desk.go(path)
        shared = page.locator(".map-device[title*='half-ours']")
        expect(shared).to_have_attribute("title", re.compile("half-ours .robotics.; in use by other tenants$"))
        for name in ("theirs", "nlp", "vision"):
            assert name not in page.content(), (path, name)
    for job_id in (own, hidden):
        guarded.client.act(job_id, "cancel")


@pytest.mark.attack("opens a colleague's job in the dashboard to stop it", stopped_by="members change their own jobs")
def test_a_member_finds_no_button_on_a_colleagues_job(chromium: Browser, guarded: Manager) -> None:
    _, secret = token(guarded, "member", "vision")
    desk = window(chromium, guarded)
    log_in(desk, secret)
    job_id = guarded.submit("sleep 600", name="hers", tenant="vision", resources={"gpus": 4})
    page = desk.go(f"/jobs/{job_id}")
    expect(page.get_by_role("button", name="Clone")).to_be_visible()

    for action in ("Hold", "Cancel", "Release"):
        expect(page.get_by_role("button", name=action)).to_have_count(0)


def test_an_array_is_one_row_that_opens(chromium: Browser, guarded: Manager) -> None:
    sweep = {"run": "sleep 600", "name": "sweep", "tenant": "vision", "resources": {"gpus": 4}}
    ids = guarded.client.submit([{**sweep, "array": index} for index in range(3)])
    desk = window(chromium, guarded)
    log_in(desk, guarded.token)
    page = desk.go("/jobs?q=sweep")
    rows = page.get_by_role("table", name="Jobs").locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("3 waiting")

    rows.first.get_by_role("link", name="Open 3 jobs").click()
    expect(page.get_by_role("heading", name=f"Jobs of array {ids[0]}")).to_be_visible()
    expect(rows).to_have_count(3)
    guarded.client.act_on_all("cancel", ids=ids)


@pytest.mark.attack("keeps using a page after its token was revoked", stopped_by="the page is closed with the token")
def test_a_member_acts_in_its_own_name_until_its_token_is_revoked(chromium: Browser, guarded: Manager) -> None:
    token_id, secret = token(guarded, "member", "vision")
    desk = window(chromium, guarded)
    log_in(desk, secret)
    own = Client(guarded.client.url, secret)
    job_id = own.submit({"run": "sleep 600", "name": "mine", "tenant": "vision", "resources": {"gpus": 4}})[0]
    page = desk.go(f"/jobs/{job_id}")
    page.get_by_role("button", name="Hold").click()
    page.get_by_role("dialog").get_by_role("button", name="Hold job").click()
    expect(page.locator(".page-head .chip")).to_have_text("held")
    entry = guarded.client.get("/audit")[0]
    assert (entry["what"], entry["who"], entry["thing"]) == ("hold", "member-of-vision", job_id)

    admin = window(chromium, guarded)
    log_in(admin, guarded.token)
    admin.page.get_by_role("link", name="Audit").click()
    newest = admin.page.get_by_role("table", name="Audit log").locator("tbody tr").first
    expect(newest).to_contain_text(f"member-of-visionhold{job_id}")
    assert admin.errors == []

    guarded.client.delete(f"/tokens/{token_id}")
    expect(newest).to_contain_text("token-revoke", timeout=20_000)

    expect(page.get_by_label("Token")).to_be_visible()


@pytest.mark.attack("reads the session's cookie from a script", stopped_by="HttpOnly, SameSite, and no token in it")
def test_the_session_s_cookie_is_out_of_reach_for_scripts(guarded: Manager) -> None:
    _, secret = token(guarded, "viewer", "nlp")
    status, headers, _ = ask(guarded, "POST", "/login", urlencode({"token": secret}).encode(), Content_Type=FORM)

    assert status == 303
    cookie = headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert secret.lower() not in cookie


REFUSED = {
    "a page without a token": ("GET", "/jobs", {}, 303),
    "an unknown session": ("GET", "/", {"Cookie": "rota_session=forged"}, 303),
    "a malformed cookie": ("GET", "/", {"Cookie": 'rota_session="\\"; ;;=x'}, 303),
    "the socket without a session": ("GET", "/_nicegui_ws/socket.io/?EIO=4&transport=polling", {}, 401),
    "the socket from another site": (
        "GET",
        "/_nicegui_ws/socket.io/?EIO=4&transport=polling",
        {"Origin": "https://evil.example"},
        403,
    ),
    "a login from another site": ("POST", "/login", {"Origin": "https://evil.example"}, 403),
    "a logout from another site": ("POST", "/logout", {"Origin": "null"}, 403),
    "a page that is posted to": ("POST", "/jobs", {}, 405),
    "an unknown page": ("GET", "/admin", {}, 404),
    "a file through the assets": ("GET", "/_rota/../../sessions.py", {}, 404),
    "a file through the assets, encoded": ("GET", "/_rota/..%2f..%2fsessions.py", {}, 404),
    "a login without a token": ("POST", "/login", {"Content-Type": FORM}, 401),
}


STOPPED_BY = {
    303: "pages need a session",
    401: "the token or the session is looked up first",
    403: "the check of Origin",
    404: "only known pages and assets are served",
    405: "pages are only read",
}


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        pytest.param(*case, id=name, marks=pytest.mark.attack(f"tries {name}", stopped_by=STOPPED_BY[case[-1]]))
        for name, case in REFUSED.items()
    ],
)
def test_unauthorised_requests_are_refused(
    guarded: Manager, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    got, _, answer = ask(guarded, method, path, b"" if method == "POST" else None, **headers)

    assert got == status, answer
    assert "ours" not in answer
    assert "class Sessions" not in answer


@pytest.mark.attack("frames the dashboard, or loads scripts into it", stopped_by="the content security policy")
def test_pages_may_not_be_framed_nor_load_from_elsewhere(guarded: Manager) -> None:
    _, headers, _ = ask(guarded, "GET", "/login")

    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.attack(
    "reaches a manager without tokens from another site, or by a rebound name",
    stopped_by="the check of Host and Origin",
)
def test_without_tokens_only_this_machine_s_own_pages_are_answered(tmp_path_factory: pytest.TempPathFactory) -> None:
    manager = Manager(tmp_path_factory.mktemp("open"), "--emulate", "gpu=1/1").start()
    try:
        assert ask(manager, "GET", "/jobs", Host="evil.example")[0] == 403
        assert ask(manager, "GET", "/jobs", Origin="https://evil.example")[0] == 403
        assert ask(manager, "GET", "/jobs")[0] == 200
        for page in ("%C2%B2", "9" * 30, "0", "-1", "x"):
            assert ask(manager, "GET", f"/jobs?page={page}")[0] == 200, page
        assert json.loads(ask(manager, "GET", "/nothing")[2]) == {"error": "no such page"}
    finally:
        manager.clean_up()
