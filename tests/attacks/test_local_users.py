"""Local users with passwords: guessing, flooding, and sessions of users who are gone."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

import forked
from attacks.session_calls import TimedStream, ask, ask_from, client_at, post_form
from machine_load import slowness
from managers import Manager, eventually
from rota.api.access import Access
from rota.api.identity.attempts import (
    MAX_BY_BOTH,
    MAX_BY_NAME,
    MAX_BY_SOURCE,
    WINDOW_S,
    DeviceMarks,
    LoginLimiter,
    TooManyLogins,
)
from rota.api.identity.logins import Logins
from rota.core.errors import RotaError, Unavailable
from rota.sdk.client import Client, Refused
from rota.store.tokens import Identities
from rota.store.user_file import LocalUser, UserFile, changed_users, hash_password, is_password, read_users

attack = pytest.mark.attack
PASSWORD = "correct horse battery"


def users(manager: Manager, *args: str, password: str = "") -> subprocess.CompletedProcess[str]:
    """Run `rota users` on the manager's machine."""
    return forked.run(["users", *args], env=manager.env, input=password)


def put_user(manager: Manager, name: str, role: str = "member", password: str = PASSWORD) -> None:
    """Add or change a user as `rota users` does."""
    with changed_users(manager.home / "users.json") as found:
        found[name] = LocalUser(name=name, role=role, tenants=("vision",), password=hash_password(password))


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    made = Manager(tmp_path_factory.mktemp("users"), "--emulate", "gpu=1/1", "--require-token").start_guarded()
    yield made
    made.clean_up()


def log_in(manager: Manager, name: str, password: str = PASSWORD) -> str:
    found = Client(manager.client.url, "none").post("/login", {"name": name, "password": password})
    return str(found["token"])


# -- what works -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_user_is_added_logs_in_and_is_removed_by_commands(manager: Manager) -> None:
    added = users(manager, "add", "lin", "--tenant", "vision", "--password-stdin", password=f"{PASSWORD}\n")
    assert added.returncode == 0, added.stderr
    assert users(manager, "list", "-o", "csv").stdout.splitlines()[-1].startswith("lin,member,")
    login = ["login", "--user", "lin", "--password-stdin", "--server", manager.client.url]
    told = forked.run(login, env=manager.env, input=f"{PASSWORD}\n")
    assert told.stdout == f"logged in to {manager.client.url} as lin (member; tenants: vision)\n"
    assert "lin" in manager.rota("whoami").stdout
    assert users(manager, "remove", "lin").returncode == 0

    gone = eventually(lambda: found if (found := manager.rota("whoami")).returncode else None)

    assert gone is not None
    assert gone.stderr.endswith("log in again with `rota login`\n")
    again = users(manager, "remove", "lin")
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)


def test_login_page_takes_users_and_tokens(manager: Manager) -> None:
    put_user(manager, "page")
    page = ask(manager.client.url, "GET", "/login?next=/jobs").text
    assert 'name="password"' in page
    assert 'name="token"' in page

    answer = post_form(manager.client.url, "/login?next=/jobs", name="page", password=PASSWORD)

    assert (answer.status, answer.headers["location"]) == (303, "/jobs")
    cookie = f"rota_session={answer.cookie('rota_session')}"
    assert ask(manager.client.url, "GET", "/jobs", Cookie=cookie).status == 200


# -- guessing -------------------------------------------------------------------------------------


@attack(
    "guesses a local user's password", stopped_by="five failures, then the user is refused at this address for minutes"
)
def test_brute_force_is_stopped(manager: Manager) -> None:
    put_user(manager, "victim")
    url = manager.client.url
    for number in range(MAX_BY_BOTH):
        assert post_form(url, "/login", name="victim", password=f"guess-{number}").status == 401

    refused = post_form(url, "/login", name="victim", password=PASSWORD)

    assert refused.status == 429, "even the right password is not looked at"
    assert 0 < int(refused.headers["retry-after"]) <= WINDOW_S
    with pytest.raises(Refused) as api:
        log_in(manager, "victim")
    assert api.value.status == 429
    rows = eventually(lambda: manager.client.get("/audit?what=login-refused"), within_s=60)
    assert any("as 'victim'" in row["detail"] for row in rows)
    assert not any("guess-" in json.dumps(row) for row in rows), "what was tried is not written down"


@attack("guesses one user's password from many addresses", stopped_by="failures are counted by user as well")
def test_distributed_guessing_is_stopped() -> None:
    limiter = LoginLimiter(clock=lambda: 0.0)
    for number in range(MAX_BY_NAME):
        limiter.refuse_if_many(f"192.0.2.{number}", "victim")
        limiter.failed(f"192.0.2.{number}", "victim")

    with pytest.raises(TooManyLogins):
        limiter.refuse_if_many("198.51.100.1", "victim")
    limiter.refuse_if_many("198.51.100.1", "another")


@attack("guesses many users' passwords from one address", stopped_by="what comes from it waits, one at a time")
@pytest.mark.parametrize("address", ["192.0.2.1", "2001:db8::{}"])
def test_spraying_is_slowed_down(address: str) -> None:
    """All addresses of an IPv6 network are one."""
    limiter = LoginLimiter(clock=lambda: 0.0)
    for number in range(MAX_BY_SOURCE):
        assert limiter.pause_s(address.format(9999)) == 0.0
        limiter.failed(address.format(number), f"user-{number}")

    assert limiter.pause_s(address.format(9999)) > 0.0
    assert limiter.pause_s("198.51.100.1") == 0.0


@attack("locks out others behind the same proxy with failed logins", stopped_by="valid tokens and passwords are taken")
def test_failures_of_an_address_lock_nobody_out(manager: Manager) -> None:
    put_user(manager, "bystander")
    url = manager.client.url
    failures = [post_form(url, "/login", token=f"rota_guess-{number}").status for number in range(MAX_BY_SOURCE + 3)]
    assert failures[0] == 401
    assert failures[-1] == 429, "failures are slowed down"

    assert post_form(url, "/login", token=manager.token).status == 303
    begun = time.monotonic()
    assert post_form(url, "/login", name="bystander", password=PASSWORD).status == 303
    assert time.monotonic() - begun < 10.0 * slowness()


@attack("locks a user out by failing in the user's name", stopped_by="a device that logged in before is counted alone")
def test_known_device_is_not_locked_out(manager: Manager) -> None:
    put_user(manager, "target")
    url = manager.client.url
    anonymous = Client(url, "none")
    mark = anonymous.post("/login", {"name": "target", "password": PASSWORD})["device"]
    browser = post_form(url, "/login", name="target", password=PASSWORD)
    cookie = browser.cookie("rota_device")
    for number in range(MAX_BY_BOTH):
        assert post_form(url, "/login", name="target", password=f"no-{number}").status == 401
    assert post_form(url, "/login", name="target", password=PASSWORD).status == 429

    assert anonymous.post("/login", {"name": "target", "password": PASSWORD, "device": mark})["token"]
    known = post_form(url, "/login", {"Cookie": f"rota_device={cookie}"}, name="target", password=PASSWORD)
    assert known.status == 303


@attack("guesses with a stolen or forged mark of a device", stopped_by="marks are signed, for one user, and counted")
def test_marks_are_counted_and_belong_to_a_user() -> None:
    marks, limiter = DeviceMarks(), LoginLimiter(clock=lambda: 0.0)
    mark = marks.make("ada", "hash")
    device = marks.device(mark, "ada", "hash")

    assert device
    assert not marks.device(mark, "bob", "hash")
    assert not marks.device(mark, "ada", "another password")
    assert not marks.device(f"{device}.{'0' * 64}", "ada", "hash")
    assert not DeviceMarks().device(mark, "ada", "hash")
    for _ in range(MAX_BY_BOTH):
        limiter.failed("192.0.2.1", "ada", device)
    with pytest.raises(TooManyLogins):
        limiter.refuse_if_many("192.0.2.2", "ada", device)
    limiter.refuse_if_many("192.0.2.1", "ada")


@attack("fills the memory with failed logins", stopped_by="the number of counters is bounded")
def test_counters_are_bounded_and_forgotten() -> None:
    now = [0.0]
    limiter = LoginLimiter(clock=lambda: now[0])
    for number in range(20_000):
        limiter.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", f"user-{number}")
    assert len(limiter._failures) <= 10_000
    for _ in range(MAX_BY_BOTH):
        limiter.failed("192.0.2.1", "ada")
    with pytest.raises(TooManyLogins):
        limiter.refuse_if_many("192.0.2.1", "ada")
    now[0] += WINDOW_S + 1
    limiter.refuse_if_many("192.0.2.1", "ada")


@pytest.mark.slow
@attack("finds out which users exist", stopped_by="unknown users take as long, and get the same answer")
def test_unknown_user_looks_like_a_wrong_password(tmp_path: Path) -> None:
    manager = Manager(tmp_path, "--emulate", "gpu=1/1", "--require-token").start_guarded()
    try:
        put_user(manager, "known")
        answers, times = set(), {"known": [], "unknown": []}  # type: ignore[var-annotated]
        for _ in range(MAX_BY_BOTH - 1):
            for name, taken in times.items():
                begun = time.perf_counter()
                answer = post_form(manager.client.url, "/login", name=name, password="wrong password")
                taken.append(time.perf_counter() - begun)
                answers.add((answer.status, answer.text.replace("unknown", "known")))
        assert len(answers) == 1
        known, unknown = (statistics.median(times[name]) for name in ("known", "unknown"))
        assert unknown > known / 3, "the same hash is computed"
    finally:
        manager.clean_up()


@pytest.mark.slow
@attack("keeps the manager busy with hashes", stopped_by="few hashes at once, in threads, and a bounded queue")
def test_flood_of_logins_does_not_stop_others(manager: Manager) -> None:
    put_user(manager, "busy")

    def attempt(number: int) -> int:
        body = json.dumps({"name": f"user-{number}", "password": "x" * 1000}).encode()
        source = f"127.0.1.{number + 1}"
        return ask_from(
            source, manager.client.url, "POST", "/api/v1/login", body, Content_Type="application/json"
        ).status

    with ThreadPoolExecutor(40) as pool:
        flood = [pool.submit(attempt, number) for number in range(80)]
        taken = []
        while not all(each.done() for each in flood):
            begun = time.monotonic()
            manager.client.nodes()
            taken.append(time.monotonic() - begun)
            time.sleep(0.02)  # within the rate of one caller
    statuses = {each.result() for each in flood}

    assert statuses <= {401, 429}
    assert 429 in statuses
    assert statistics.median(taken) < 0.5 * slowness()


# -- the file -------------------------------------------------------------------------------------


@attack("reads passwords in the file of users", stopped_by="scrypt with a salt each, and a file of its owner only")
def test_file_has_no_password_and_is_private(manager: Manager) -> None:
    put_user(manager, "one")
    put_user(manager, "two")
    path = manager.home / "users.json"

    assert path.stat().st_mode & 0o777 == 0o600
    assert PASSWORD not in path.read_text()
    found = read_users(path)
    assert found["one"].password != found["two"].password
    assert found["one"].password.startswith("scrypt:32768:8:1:")
    assert is_password(PASSWORD, found["one"].password)
    assert not is_password(PASSWORD + " ", found["one"].password)


@attack("breaks the file of users to get in", stopped_by="a damaged file logs no user in, and says so")
@pytest.mark.parametrize(
    "content",
    [
        "not json",
        "[]",
        '{"users": {"eve": {"role": "god", "tenants": [], "password": "scrypt:2:8:1:AA==:AA=="}}}',
        '{"users": {"eve": {"role": "admin", "tenants": [], "password": ""}}}',
        '{"users": {"eve": {"role": "admin", "tenants": "vision", "password": "scrypt:2:8:1:AA==:AA=="}}}',
        '{"users": {"eve": {"role": "admin", "tenants": [], "password": "scrypt:1099511627776:8:1:AA==:AA=="}}}',
    ],
)
def test_damaged_file_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "users.json"
    path.write_text(content)

    with pytest.raises(RotaError, match="not a file of users"):
        UserFile(path).users()


@attack("logs in where the file of users is damaged, to learn where it lies", stopped_by="only the log says why")
def test_damaged_file_is_not_described_to_those_who_log_in(tmp_path: Path) -> None:
    (tmp_path / "users.json").write_text("not json")
    logins = Logins(cast(Access, None), cast(Identities, None), UserFile(tmp_path / "users.json"))

    with pytest.raises(Unavailable) as caught:
        asyncio.run(logins.log_in_user("ada", PASSWORD, "10.0.0.1"))

    assert str(caught.value) == "local users can't log in now; the manager's log says why"


@attack("adds a user with a name of the manager, or one that breaks lines", stopped_by="names are checked")
@pytest.mark.parametrize("name", ["local", "manager", "a b", "\x1b[2J", "../x", "", "x" * 200])
def test_odd_names_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    from rota.cli.main import status

    assert status(["users", "add", "--file", str(tmp_path / "users.json"), "--", name]) == 2
    assert "is not a user name" in capsys.readouterr().err
    assert not (tmp_path / "users.json").exists()


# -- the end --------------------------------------------------------------------------------------


@attack("keeps a session after its user was removed", stopped_by="sessions follow the file of users")
def test_removed_user_s_streams_end_within_a_second(manager: Manager) -> None:
    put_user(manager, "gone")
    token = log_in(manager, "gone")
    stream = TimedStream(manager.client.url, "/events", token)
    eventually(lambda: stream.content)

    with changed_users(manager.home / "users.json") as found:
        del found["gone"]

    assert stream.ends_within(2.0), "half a second to notice, half a second to end, and a busy machine"
    with pytest.raises(Refused) as refused:
        client_at(manager, token).nodes()
    assert refused.value.status == 401


@attack("keeps a session after the password was changed", stopped_by="sessions follow the file of users")
def test_changed_password_ends_sessions(manager: Manager) -> None:
    put_user(manager, "changed")
    token = log_in(manager, "changed")
    put_user(manager, "changed", password="another good password")

    def is_over() -> bool:
        try:
            client_at(manager, token).nodes()
        except Refused as refused:
            return refused.status == 401
        return False

    eventually(is_over, within_s=60)
    assert log_in(manager, "changed", "another good password")


@attack("opens sessions without end", stopped_by="a user's oldest sessions end")
def test_number_of_sessions_is_bounded(tmp_path: Path) -> None:
    from rota.api.access import Access, AccessRole
    from rota.store.database import open_database
    from rota.store.tokens import SESSIONS_PER_USER, Tokens

    engine = open_database(tmp_path / "rota.db")
    access = Access(Tokens(engine), required=True)
    opened = [access.open_session("ada", AccessRole.MEMBER, (), time.time() + 60, "")[0] for _ in range(25)]

    assert [access.is_valid(each.digest) for each in opened] == [False] * 5 + [True] * SESSIONS_PER_USER
    engine.dispose()
