"""Pages of jobs: who reaches them, what never passes between them and the manager, and their hosts."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attacks.lab import Lab
from attacks.session_calls import HttpAnswer, ask, log_in_page
from managers import eventually
from rota.api.proxy.headers import to_browser, to_job
from rota.api.proxy.places import BadPlace, ProxyNames, ProxyPlace, place_of
from rota.api.proxy.visits import LIFETIME_S, TICKET_S, Visits

pytestmark = pytest.mark.slow
attack = pytest.mark.attack
SERVER = Path(__file__).parent.parent / "e2e" / "page_server.py"
OWN_ORIGIN = "each place has an origin of its own, with a cookie of its own"


class Served:
    """A job of ada with a web server, and requests to it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.url = lab.manager.client.url
        self.job_id = lab.submit("ada", run=f"exec {sys.executable} {SERVER}", resources={"gpus": 1})
        said = eventually(lambda: re.findall(r"port (\d+)", lab.manager.said(self.job_id)))
        self.port = int(said[0])
        self.path = f"/proxy/{self.job_id}/{self.port}/"

    def direct(self, name: str, path: str = "", method: str = "GET", **headers: str) -> HttpAnswer:
        """A request with a token."""
        given = {"Authorization": f"Bearer {self.lab.secrets[name]}", **headers}
        return ask(self.url, method, self.path + path, None, **given)

    def enter(self, name: str, path: str = "") -> tuple[str, str]:
        """Log in, and open the page as a browser does: return its host, and the cookie there."""
        login = log_in_page(self.url, self.lab.secrets[name])
        sent = ask(self.url, "GET", (path or self.path), Cookie=login)
        assert sent.status == 303, sent.text
        place = urlsplit(sent.headers["location"])
        arrived = self.at(place.netloc, f"{place.path}?{place.query}")
        assert arrived.status == 200, arrived.text
        return place.netloc, f"rota_visit={arrived.cookie('rota_visit')}"

    def at(self, host: str, path: str = "/", method: str = "GET", **headers: str) -> HttpAnswer:
        """A request to a host name that leads to the manager."""
        return ask(self.url, method, path, None, Host=host, **headers)


@pytest.fixture(scope="module")
def served(managed: Lab) -> Iterator[Served]:
    yield Served(managed)
    managed.clear()


def seen(answer: HttpAnswer) -> dict[str, str]:
    """The headers that the job's server got."""
    assert answer.status == 200, answer.text
    return dict(json.loads(answer.text)["headers"])


@attack("opens the page of a colleague's job", stopped_by="the rights of `rota exec`")
def test_colleagues_and_others_reach_no_page(served: Served) -> None:
    for name, status in (("bob", 403), ("vic", 403), ("eve", 404)):
        assert served.direct(name).status == status
        login = log_in_page(served.url, served.lab.secrets[name])
        assert ask(served.url, "GET", served.path, Cookie=login).status == status
        assert served.lab.ask(name, "GET", f"/jobs/{served.job_id}/services")[0] == status
    for name in ("ada", "mia", "admin"):
        assert served.direct(name).status == 200
    assert ask(served.url, "GET", served.path).status == 401
    opened = [(each["who"], each["what"], each["detail"]) for each in served.lab.manager.client.audit(50)]
    assert ("mia", "proxy-open", f"task 0: port {served.port}") in opened


@attack("reads the visitor's token and session in what its page is sent", stopped_by="they are taken out")
def test_credentials_never_reach_the_job(served: Served) -> None:
    token = served.lab.secrets["ada"]
    got = seen(served.direct("ada", "x", Cookie="rota_session=s; __Host-rota_session=s; rota_visit=v; theirs=1"))
    assert "authorization" not in got
    assert got["cookie"] == "theirs=1"

    host, visit = served.enter("ada")
    got = seen(served.at(host, "/x", Cookie=f"{visit}; rota_session=s; a=b", Authorization=f"Bearer {token}"))
    assert "authorization" not in got
    assert got["cookie"] == "a=b"
    assert got["host"] == host
    assert seen(served.at(host, "/x", Cookie=visit, Authorization="Basic abc"))["authorization"] == "Basic abc"


@attack("replaces the visitor's session by a cookie of the same name", stopped_by="such cookies are dropped")
@attack("sets cookies for the manager's host, or has the browser clear them", stopped_by="they lose their domain")
def test_cookies_of_a_job_stay_at_its_origin(served: Served) -> None:
    host, visit = served.enter("ada")
    answer = served.at(host, "/cookies", Cookie=visit)
    assert [each.replace(" ", "") for each in answer.cookies] == ["own=1;Path=/"]
    assert not {"clear-site-data", "alt-svc"} & answer.headers.keys()
    assert "frame-ancestors 'self'" in answer.headers["content-security-policy"]
    assert served.direct("ada", "cookies").cookies == []


@attack("has its page answered at the manager's own origin, where scripts are its visitor", stopped_by=OWN_ORIGIN)
def test_manager_s_origin_shows_no_page_of_a_job(served: Served) -> None:
    login = log_in_page(served.url, served.lab.secrets["ada"])
    sent = ask(served.url, "GET", served.path, Cookie=login)
    assert (sent.status, urlsplit(sent.headers["location"]).netloc) != (200, urlsplit(served.url).netloc)
    assert ask(served.url, "POST", served.path, b"", Cookie=login).status == 403
    assert "sandbox" in served.direct("ada").headers["content-security-policy"]


@attack(
    "asks the manager's API at the host of a job, with the visit's cookie", stopped_by="such hosts lead to jobs only"
)
@pytest.mark.parametrize(
    "path", ["/api/v1/jobs", "/metrics", "/login", "/healthz", "/jobs", "/_nicegui", "/proxy/1/1/"]
)
def test_host_of_a_job_answers_nothing_of_the_manager(served: Served, path: str) -> None:
    host, visit = served.enter("ada")
    assert json.loads(served.at(host, path, Cookie=visit).text)["path"] == path  # the job's own answer
    token = {"Authorization": f"Bearer {served.lab.secrets['admin']}"}
    assert served.at(host, path, **token).status == 401
    unknown = re.sub("j-.", "j-0" if "j-0" not in host else "j-1", host)
    assert served.at(unknown, path, Cookie=visit, **token).status == 401


@attack("uses a visit's cookie for another job or port", stopped_by="a visit is valid at its own host only")
@attack("uses a ticket twice, at another host, or one that it made up", stopped_by="a ticket works once, at its host")
def test_visits_and_tickets_are_for_one_place(served: Served) -> None:
    host, visit = served.enter("ada")
    other, other_visit = served.enter("ada", f"/proxy/{served.job_id}/page/")
    assert host != other
    assert served.at(other, Cookie=visit).status == 401
    assert served.at(other, Cookie=f"{visit}; {other_visit}").status == 200  # one that was set for the whole domain

    login = log_in_page(served.url, served.lab.secrets["ada"])
    place = urlsplit(ask(served.url, "GET", served.path, Cookie=login).headers["location"])
    asked = f"{place.path}?{place.query}"
    assert served.at(other, asked).status == 401
    assert served.at(place.netloc, asked).status == 401  # the attempt has used it up
    assert served.at(place.netloc, "/_rota/open?ticket=made-up&next=/").status == 401


@attack(
    "leads a visitor elsewhere by the address of the entrance", stopped_by="only paths of the same origin are taken"
)
@pytest.mark.parametrize(
    "asked", ["//evil.example/", "/\\evil.example", "https://evil.example/", "x", "/%09/evil.example", '/"><script>']
)
def test_entrance_leads_nowhere_else(served: Served, asked: str) -> None:
    login = log_in_page(served.url, served.lab.secrets["ada"])
    place = urlsplit(ask(served.url, "GET", served.path, Cookie=login).headers["location"])
    ticket = place.query.partition("&")[0]
    arrived = served.at(place.netloc, f"/_rota/open?{ticket}&next={asked.replace('>', '%3E').replace(chr(34), '%22')}")
    assert arrived.status == 200
    assert "evil" not in arrived.text
    assert "<script>" not in arrived.text


@attack("sends requests to a job's page from other sites or other jobs' pages", stopped_by="Origin and Sec-Fetch-Site")
def test_other_origins_reach_no_page(served: Served) -> None:
    host, visit = served.enter("ada")
    other, _ = served.enter("ada", f"/proxy/{served.job_id}/page/")
    for origin in (f"http://{other}", "https://evil.example", "null", served.url):
        assert served.at(host, "/x", "POST", Cookie=visit, Origin=origin).status == 403
    for site in ("cross-site", "same-site"):
        for mode in ("no-cors", "navigate"):
            assert served.at(host, "/x", Cookie=visit, Sec_Fetch_Site=site, Sec_Fetch_Mode=mode).status == 403
    assert served.at(host, "/x", "POST", Cookie=visit, Origin=f"http://{host}").status == 200


@attack(
    "goes on with a page after its token was revoked, or after a logout", stopped_by="rights are looked up each time"
)
def test_visits_end_with_the_login(served: Served) -> None:
    host, visit = served.enter("mia")
    login = log_in_page(served.url, served.lab.secrets["mia"])
    place = urlsplit(ask(served.url, "GET", served.path, Cookie=login).headers["location"])
    arrived = served.at(place.netloc, f"{place.path}?{place.query}")
    second = f"rota_visit={arrived.cookie('rota_visit')}"
    assert served.at(host, Cookie=second).status == 200
    assert ask(served.url, "POST", "/logout", Cookie=login).status == 200
    assert served.at(host, Cookie=second).status == 401
    assert served.at(host, Cookie=visit).status == 200  # another login of the same user

    made = served.lab.ask("admin", "POST", "/tokens", {"name": "ada", "role": "member", "tenants": ["nlp"]})[1]
    served.lab.secrets["ada-2"] = made["token"]
    host, visit = served.enter("ada-2")
    with closing(Streamed(served.url, host, visit)) as stream:
        assert stream.status == 200
        served.lab.ask("admin", "DELETE", f"/tokens/{made['id']}")
        assert stream.ends()
    assert served.at(host, Cookie=visit).status == 401


class Streamed:
    """A page without end."""

    def __init__(self, url: str, host: str, visit: str) -> None:
        from http.client import HTTPConnection

        place = urlsplit(url)
        self._connection = HTTPConnection(place.hostname or "", place.port, timeout=60)
        self._connection.request("GET", "/endless", headers={"Host": host, "Cookie": visit})
        self._answer = self._connection.getresponse()
        self.status = self._answer.status

    def ends(self) -> bool:
        """Read to the end, or fail by the connection's limit."""
        from http.client import HTTPException

        try:
            while self._answer.read1(1000):
                pass
        except (HTTPException, ConnectionError):
            pass
        return True

    def close(self) -> None:
        """Stop reading."""
        self._connection.close()


@attack(
    "climbs out of the folder of services, or names what is none", stopped_by="names are checked in manager and task"
)
@given(st.text(max_size=40))
def test_paths_name_a_port_or_service_or_nothing(text: str) -> None:
    try:
        place, rest = place_of(f"/proxy/17/{text}")
    except BadPlace:
        return
    assert rest.startswith("/")
    assert place.port in range(1, 65536) if place.service is None else re.fullmatch("[a-z][a-z0-9-]*", place.service)
    assert place_of(place.path)[0] == place


@given(st.text(alphabet="ab-.:0123456789jlocahst", max_size=60))
def test_only_its_own_hosts_are_a_job_s(host: str) -> None:
    names = ProxyNames(b"k" * 32, "localhost")
    assert names.label_in(host) is None or re.fullmatch(r"j-[0-9a-f]{20}\.localhost\.?(:\d*)?", host)


def test_hosts_of_places_differ_by_place_and_manager() -> None:
    places = [ProxyPlace(job_id=j, task=t, port=p) for j in ("1", "11") for t in (0, 1) for p in (1, 11, 80)]
    places += [ProxyPlace(job_id="1", service=name) for name in ("a", "b")]
    labels = [ProxyNames(key, "jobs.example.org").label(place) for key in (b"a" * 32, b"b" * 32) for place in places]
    assert len({*labels}) == len(labels)
    names = ProxyNames(b"a" * 32, "jobs.example.org")
    assert names.label_in("rota.jobs.example.org") is None
    for place in places:
        host = urlsplit(names.origin(place, "https", "rota.example.org:8443")).netloc
        assert names.label_in(host.upper()) == names.label(place)


def test_tickets_and_visits_expire() -> None:
    now = [0.0]
    visits = Visits(lambda: now[0])
    place = ProxyPlace(job_id="1", port=80)

    def ticket() -> str:
        return visits.new_ticket(place, "j-1", lambda: None, "pages ada")  # type: ignore[arg-type,return-value]  # unused

    old = ticket()
    now[0] += TICKET_S
    assert visits.begin(old, "j-1") is None
    begun = visits.begin(ticket(), "j-1")
    assert begun is not None
    assert visits.find(f"rota_visit={begun[0]}", "j-1", secure=False) == begun[1]
    assert visits.find(f"rota_visit={begun[0]}", "j-1", secure=True) is None
    now[0] += LIFETIME_S
    assert visits.find(f"rota_visit={begun[0]}", "j-1", secure=False) is None


@attack(
    "hides a header from the proxy by listing it in Connection, or smuggles a second length", stopped_by="taken out"
)
def test_headers_of_a_connection_are_not_passed_on() -> None:
    sent = [(b"host", b"h"), (b"connection", b"keep-alive, X-Hop"), (b"x-hop", b"1"), (b"te", b"trailers")]
    sent += [(b"transfer-encoding", b"chunked"), (b"content-length", b"3"), (b"x-forwarded-for", b"9.9.9.9")]
    got = to_job(sent, client="1.2.3.4", secure=True, has_own_authorization=True)
    assert got == [
        (b"host", b"h"),
        (b"x-forwarded-for", b"1.2.3.4"),
        (b"x-forwarded-host", b"h"),
        (b"x-forwarded-proto", b"https"),
    ]
    answered = [(b"Connection", b"close, X-Own"), (b"X-Own", b"1"), (b"Content-Type", b"a/b")]
    assert to_browser(answered, direct=False)[0] == (b"content-type", b"a/b")
    assert len(to_browser(answered, direct=False)) == 2
