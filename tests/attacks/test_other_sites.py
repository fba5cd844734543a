"""Requests that a page of another site makes with a user's browser, and names that were rebound."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from attacks.session_calls import ask, log_in_page, post_form
from managers import Manager, eventually

attack = pytest.mark.attack
NAVIGATE = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
JOB = b'{"run": "true"}'


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    made = Manager(tmp_path_factory.mktemp("guarded"), "--emulate", "gpu=1/1", "--require-token").start_guarded()
    made.client.drain("n1")
    yield made
    made.clean_up()


@pytest.fixture(scope="module")
def open_manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    made = Manager(tmp_path_factory.mktemp("open"), "--emulate", "gpu=1/1").start()
    yield made
    made.clean_up()


BY_FETCH = "Sec-Fetch-Site is checked"
BY_ORIGIN = "Origin is compared with Host"
CASES = [
    ("submits a job from another site", "POST", "/api/v1/jobs", {"Sec_Fetch_Site": "cross-site"}, BY_FETCH),
    ("submits a job from a sibling host", "POST", "/api/v1/jobs", {"Sec_Fetch_Site": "same-site"}, BY_FETCH),
    ("submits a job from a sandboxed frame", "POST", "/api/v1/jobs", {"Origin": "null"}, BY_ORIGIN),
    ("submits a job with an old browser", "POST", "/api/v1/jobs", {"Origin": "https://evil.example"}, BY_ORIGIN),
    ("reads jobs from another site", "GET", "/api/v1/jobs", {"Sec_Fetch_Site": "cross-site"}, BY_FETCH),
    ("reads metrics from another site", "GET", "/metrics", {"Sec_Fetch_Site": "cross-site"}, BY_FETCH),
    ("logs a user in from another site", "POST", "/login", {"Sec_Fetch_Site": "cross-site", **NAVIGATE}, BY_FETCH),
    ("logs a user out from another site", "POST", "/logout", {"Sec_Fetch_Site": "cross-site", **NAVIGATE}, BY_FETCH),
    (
        "opens the dashboard's socket from another site",
        "GET",
        "/_nicegui_ws/socket.io/?EIO=4&transport=polling",
        {"Sec_Fetch_Site": "cross-site", "Cookie": "SESSION"},
        BY_FETCH,
    ),
    (
        "loads a page as a script or an image",
        "GET",
        "/jobs",
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "script", "Cookie": "SESSION"},
        BY_FETCH,
    ),
    (
        "frames a page of a logged-in user",
        "GET",
        "/jobs",
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe", "Cookie": "SESSION"},
        BY_FETCH,
    ),
]


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        pytest.param(method, path, headers, marks=attack(what, stopped_by=how), id=what)
        for what, method, path, headers, how in CASES
    ],
)
def test_request_of_another_site_is_refused(guarded: Manager, method: str, path: str, headers: dict[str, str]) -> None:
    given = {"Authorization": f"Bearer {guarded.token}"} if path.startswith("/api") else {}
    given |= headers
    if given.get("Cookie") == "SESSION":
        given["Cookie"] = log_in_page(guarded.client.url, guarded.token)

    before = len(list(guarded.client.jobs(all=True)))

    answer = ask(guarded.client.url, method, path, JOB if method == "POST" else None, **given)

    assert answer.status == 403, answer.text
    assert len(list(guarded.client.jobs(all=True))) == before
    own = {name: value for name, value in given.items() if not name.startswith("Sec") and name != "Origin"}
    expected = ask(guarded.client.url, method, path, JOB if method == "POST" else None, **own)
    assert expected.status != 403, "it is refused for where it comes from alone"


@attack(
    "sends a user to a page by a link on another site", stopped_by="the user is asked, without the page being built"
)
def test_link_of_another_site_shows_nothing_before_the_user_agrees(guarded: Manager) -> None:
    cookie = log_in_page(guarded.client.url, guarded.token)

    answer = ask(
        guarded.client.url, "GET", "/jobs?page=2", None, Sec_Fetch_Site="cross-site", Cookie=cookie, **NAVIGATE
    )

    assert answer.status == 200
    assert 'href="/jobs?page=2"' in answer.text
    assert "client_id" not in answer.text
    assert "script" not in answer.headers["content-security-policy"].replace("default-src 'none'", "")


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=attack("makes Rota link to another site", stopped_by="only own pages are linked"))
        for path in ("//evil.example/x", "/\\evil.example", '/jobs/"><script>alert(1)</script>')
    ],
)
def test_page_that_asks_leads_nowhere_else(guarded: Manager, path: str) -> None:
    answer = ask(guarded.client.url, "GET", quote(path, safe="/"), None, Sec_Fetch_Site="cross-site", **NAVIGATE)

    assert "evil.example" not in answer.text
    assert "<script" not in answer.text


@attack("rebinds a name to this machine to use an open manager", stopped_by="only names of this machine are answered")
def test_rebound_name_is_refused_everywhere(open_manager: Manager) -> None:
    for path in ("/", "/jobs", "/api/v1/jobs", "/api/v1/nodes", "/login"):
        answer = ask(open_manager.client.url, "GET", path, Host="evil.example:7650")
        assert answer.status == 403, path


@attack("uses an open manager from a page of another local port", stopped_by="Sec-Fetch-Site and Origin are checked")
def test_other_local_ports_are_other_sites(open_manager: Manager) -> None:
    url = open_manager.client.url
    assert ask(url, "POST", "/api/v1/jobs", JOB, Origin="http://localhost:8888").status == 403
    assert ask(url, "POST", "/api/v1/jobs", JOB, Sec_Fetch_Site="same-site").status == 403
    assert ask(url, "GET", "/api/v1/jobs", Sec_Fetch_Site="same-site").status == 403
    assert list(open_manager.client.jobs(all=True)) == []


@attack(
    "forges the address of a request to escape limits", stopped_by="forwarded addresses count from a trusted proxy only"
)
def test_forwarded_address_is_not_believed(guarded: Manager) -> None:
    post_form(guarded.client.url, "/login", {"X-Forwarded-For": "203.0.113.7"}, token="guess")

    rows = eventually(lambda: guarded.client.get("/audit?what=login-refused"), within_s=60)
    assert {row["thing"] for row in rows} == {"127.0.0.1"}


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path, marks=attack("swaps a script that the API's documentation loads", stopped_by="it loads none")
        )
        for path in ("/api/docs", "/docs", "/redoc")
    ],
)
def test_documentation_needs_nothing_from_elsewhere(guarded: Manager, path: str) -> None:
    answer = ask(guarded.client.url, "GET", path)
    if answer.status in (307, 308):
        assert answer.headers["location"] == "/api/docs"
        answer = ask(guarded.client.url, "GET", "/api/docs")

    assert answer.status == 200
    assert "<script" not in answer.text
    assert "://" not in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "/api/v1/jobs/{job_id}/logs" in answer.text
    assert ask(guarded.client.url, "GET", "/api/docs.css").headers["content-type"].startswith("text/css")
