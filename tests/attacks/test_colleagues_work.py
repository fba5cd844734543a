"""Attacks of one user on the work of others: by priority, by arriving later, by acting on what is not theirs.

A real manager with tokens, real HTTP and the real command line. `ada` is the victim, `bob` the attacker; both are
members of the tenant `nlp`. Nothing of ada's may change.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest

from managers import Manager, eventually
from rota.api.access import AccessRole, Forbidden, Principal
from rota.live.intake.audit_entry import Asker
from rota.web import actions

Json = dict[str, Any]
MIN_RUN_S = 0.5
OWN_ONLY = "owner-only rights: members change their own jobs"
CAP = "the cap of priorities by tenant and role"
GUARD = "the preemption guard: a job that can't resume is never stopped"


class Lab:
    """A manager with an admin, two members and a maintainer of one tenant, and a member of another."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.secrets = {"admin": manager.token}
        for name, role, tenant in (
            ("ada", "member", "nlp"),
            ("bob", "member", "nlp"),
            ("mia", "maintainer", "nlp"),
            ("vic", "viewer", "nlp"),
            ("eve", "member", "vision"),
        ):
            made = manager.client.post("/tokens", {"name": name, "role": role, "tenants": [tenant]})
            self.secrets[name] = made["token"]

    def ask(self, who: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Send a request as a user."""
        place = urlsplit(self.manager.client.url)
        connection = HTTPConnection(place.hostname or "", place.port, timeout=20)
        try:
            sent = None if body is None else json.dumps(body).encode()
            given = {"Authorization": f"Bearer {self.secrets[who]}", "Content-Type": "application/json"}
            connection.request(method, f"/api/v1{path}", body=sent, headers=given)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()

    def submit(self, who: str, run: str = "sleep 60", **fields: Any) -> str:
        """Submit a job as a user; it must be accepted."""
        file = {"run": run, "tenant": "nlp", "workdir": str(self.manager.folder), **fields}
        status, answer = self.ask(who, "POST", "/jobs", file)
        assert status == 201, answer
        return str(answer["id"])

    def job(self, job_id: str) -> Json:
        """A job as the admin sees it."""
        found: Json = self.ask("admin", "GET", f"/jobs/{job_id}")[1]
        return found

    def running(self, who: str, **fields: Any) -> str:
        """A job of a user that runs on both devices."""
        job_id = self.submit(who, resources={"gpus": 2}, **fields)
        eventually(lambda: self.job(job_id)["state"] == "running")
        return job_id

    def rota(self, who: str, *args: str) -> tuple[int, str]:
        """A command as a user: its exit code, and what it says."""
        self.manager.env |= {"ROTA_TOKEN": self.secrets[who], "ROTA_SERVER": self.manager.client.url}
        done = self.manager.rota(*args)
        return done.returncode, done.stdout + done.stderr

    def clear(self) -> None:
        """End all jobs."""
        jobs = self.ask("admin", "GET", "/jobs?limit=1000")[1]["jobs"]
        if jobs:
            self.ask("admin", "POST", "/jobs/actions", {"action": "cancel", "ids": [job["id"] for job in jobs]})
            eventually(lambda: not self.ask("admin", "GET", "/jobs")[1]["jobs"])


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    options = ("--emulate", "gpu=2/2", "--require-token", "--min-run", f"{MIN_RUN_S}s", "--cgroups", "off")
    made = Manager(tmp_path_factory.mktemp("lab"), "--tenants", "nlp,vision", *options).start_guarded()
    yield Lab(made)
    made.clean_up()


@pytest.fixture
def lab(managed: Lab) -> Iterator[Lab]:
    yield managed
    managed.clear()


# -- stopping others' work by scheduling ---------------------------------------------------------


@pytest.mark.attack("arrives later and waits for the policy to favour the newcomer", stopped_by=GUARD)
def test_later_job_waits(lab: Lab) -> None:
    victim = lab.running("ada")
    late = lab.submit("bob", resources={"gpus": 2})
    time.sleep(2 * MIN_RUN_S)

    assert (lab.job(victim)["state"], lab.job(late)["state"]) == ("running", "waiting")
    assert lab.job(victim)["attempt"] == 1


@pytest.mark.attack("gets an urgent job submitted by an admin to throw a colleague's work away", stopped_by=GUARD)
def test_not_even_an_urgent_job_of_an_admin_stops_what_cannot_resume(lab: Lab) -> None:
    victim = lab.running("ada")
    urgent = lab.submit("admin", resources={"gpus": 2}, priority=1000)
    time.sleep(2 * MIN_RUN_S)

    assert (lab.job(victim)["state"], lab.job(urgent)["state"]) == ("running", "waiting")


@pytest.mark.attack("floods the queue with short jobs so that running ones yield", stopped_by=GUARD)
def test_flood_of_short_jobs_stops_nothing(lab: Lab) -> None:
    victim = lab.running("ada")
    flood = [{"run": "true", "tenant": "nlp", "resources": {"gpus": 1}, "estimate": "1s"} for _ in range(200)]

    assert lab.ask("bob", "POST", "/jobs", flood)[0] == 201
    time.sleep(2 * MIN_RUN_S)
    assert lab.job(victim)["attempt"] == 1
    assert lab.job(victim)["state"] == "running"


def _one_succeeded(lab: Lab, *jobs: str) -> bool:
    return any(lab.job(job)["state"] == "succeeded" for job in jobs)


@pytest.mark.attack(
    "preempts a job again and again as soon as it has started", stopped_by="protected time doubles with each loss"
)
def test_preemptible_job_ends_although_others_keep_arriving(lab: Lab) -> None:
    length_s = 3.0
    victim = lab.submit("ada", f"sleep {length_s}", resources={"gpus": 2}, preemptible=True)
    deadline = time.monotonic() + 40
    while lab.job(victim)["state"] not in ("succeeded", "failed", "cancelled"):
        assert time.monotonic() < deadline, lab.job(victim)
        short = lab.submit("admin", "true", resources={"gpus": 2}, priority=9)
        eventually(partial(_one_succeeded, lab, short, victim))
    found = lab.job(victim)

    assert found["state"] == "succeeded"
    assert 1 < found["attempt"] <= 5, "1 + log2(3 / 0.5) preemptions at most, and the run that ends"


@pytest.mark.attack("preempts a job in its first moment", stopped_by="the minimum run time")
def test_preemptible_job_runs_for_the_minimum_time(lab: Lab) -> None:
    victim = lab.running("ada", preemptible=True)
    begun = time.monotonic()
    lab.submit("admin", resources={"gpus": 2}, priority=9)
    eventually(lambda: lab.job(victim)["state"] != "running")

    assert time.monotonic() - begun > 0.5 * MIN_RUN_S
    assert eventually(lambda: lab.job(victim)["state"] == "preempted")
    assert lab.job(victim)["state_text"] == "preempted, starts over"


# -- priorities above the cap --------------------------------------------------------------------

_FILE = {"run": "true", "tenant": "nlp"}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            {**_FILE, "priority": 1}, marks=pytest.mark.attack("raises the priority in a job file", stopped_by=CAP)
        ),
        pytest.param(
            {**_FILE, "priority": 1_000_000},
            marks=pytest.mark.attack("asks for the highest priority there is", stopped_by=CAP),
        ),
        pytest.param(
            [_FILE, {**_FILE, "priority": 1}],
            marks=pytest.mark.attack("hides an urgent job in a list of ordinary ones", stopped_by=CAP),
        ),
        pytest.param(
            [{**_FILE, "name": "sweep", "array": number, "priority": number} for number in range(3)],
            marks=pytest.mark.attack("raises the priority of one member of an array", stopped_by=CAP),
        ),
        pytest.param(
            {**_FILE, "gang": False, "workers": 3, "priority": 5},
            marks=pytest.mark.attack("lets the manager expand an urgent job without gang", stopped_by=CAP),
        ),
    ],
)
def test_priority_above_the_cap_is_refused(lab: Lab, body: object) -> None:
    status, answer = lab.ask("bob", "POST", "/jobs", body)

    assert status == 422
    assert "a member may give in tenant 'nlp' is 0" in answer["error"]
    assert lab.ask("admin", "GET", "/jobs")[1]["jobs"] == []


@pytest.mark.attack("tries the effect of an urgent job without submitting it", stopped_by=CAP)
def test_dry_run_has_the_same_cap(lab: Lab) -> None:
    status, answer = lab.ask("bob", "POST", "/jobs?dry_run=true", {**_FILE, "priority": 1})

    assert (status, answer["error"][:13]) == (422, "job: priority")


@pytest.mark.attack("raises the priority on the command line", stopped_by=CAP)
def test_priority_above_the_cap_is_refused_by_the_command_line(lab: Lab) -> None:
    code, said = lab.rota("bob", "submit", "--priority", "3", "--", "true")

    assert code == 2
    assert said.strip().splitlines()[-1].endswith("is 0; lower it, or ask an admin")


@pytest.mark.attack("submits at priority 0 and raises it afterwards", stopped_by=CAP)
def test_priority_above_the_cap_is_refused_for_updates(lab: Lab) -> None:
    lab.running("ada")
    mine = lab.submit("bob", resources={"gpus": 2})
    status, answer = lab.ask("bob", "PATCH", f"/jobs/{mine}", {"priority": 1})

    assert status == 422, answer
    assert lab.job(mine)["priority"] == 0


@pytest.mark.attack(
    "keeps an urgent job of better days and runs it again", stopped_by="the cap holds when a job is requeued"
)
def test_requeue_has_the_cap_of_today(lab: Lab) -> None:
    assert lab.ask("admin", "PUT", "/tenants/nlp", {"max_priority": {"member": 5}})[0] == 200
    mine = lab.submit("bob", "true", priority=5)
    eventually(lambda: lab.job(mine)["state"] == "succeeded")
    lab.ask("admin", "PUT", "/tenants/nlp", {"max_priority": {"member": 0}})

    status, answer = lab.ask("bob", "POST", f"/jobs/{mine}/requeue")
    assert (status, "priority is 5" in answer["error"]) == (422, True)


@pytest.mark.parametrize(
    "who",
    [
        pytest.param(
            "bob",
            marks=pytest.mark.attack("a member raises the cap of its own tenant", stopped_by="only admins set caps"),
        ),
        pytest.param(
            "mia",
            marks=pytest.mark.attack("a maintainer raises the cap of its tenant", stopped_by="only admins set caps"),
        ),
    ],
)
def test_cap_is_set_by_admins_alone(lab: Lab, who: str) -> None:
    assert lab.ask(who, "PUT", "/tenants/nlp", {"max_priority": {"member": 9}})[0] == 403
    assert lab.ask("bob", "POST", "/jobs", {**_FILE, "priority": 1})[0] == 422


def test_caps_and_tenants_that_admins_set_are_audited(lab: Lab) -> None:
    lab.ask("admin", "PUT", "/tenants/robots", {"max_priority": {"member": 3, "maintainer": 7}})
    lab.ask("admin", "DELETE", "/tenants/robots")
    entries = [(row["what"], row["thing"], row["detail"]) for row in lab.ask("admin", "GET", "/audit")[1]]

    assert ("tenant-add", "robots", "max_priority of member 3, max_priority of maintainer 7") in entries
    assert ("tenant-remove", "robots", "") in entries


# -- acting on what is not one's own --------------------------------------------------------------

_ACTS: list[tuple[str, str, dict[str, object] | None]] = [
    ("POST", "cancel", None),
    ("POST", "hold", None),
    ("POST", "release", None),
    ("POST", "requeue", None),
    ("PATCH", "", {"name": "hijacked"}),
    ("PATCH", "", {"preemptible": True}),
    ("PATCH", "", {"time_limit": "1s"}),
]


@pytest.mark.parametrize(
    ("method", "action", "body"),
    [
        pytest.param(
            *each,
            marks=pytest.mark.attack(
                f"{each[1] or f'changes {next(iter(each[2] or ()))} of'} a colleague's job", stopped_by=OWN_ONLY
            ),
        )
        for each in _ACTS
    ],
)
def test_member_cannot_change_a_colleagues_job(lab: Lab, method: str, action: str, body: object) -> None:
    if action == "release":
        lab.running("ada")
    victim = lab.submit("ada", "sleep 60", resources={"gpus": 2})
    if action == "release":
        lab.ask("ada", "POST", f"/jobs/{victim}/hold")
    before = lab.job(victim)
    status, answer = lab.ask("bob", method, f"/jobs/{victim}/{action}".rstrip("/"), body)

    assert status == 403
    assert "belongs to 'ada'" in answer["error"]
    after = lab.job(victim)
    assert (after["name"], after["spec"], after["attempt"] >= before["attempt"]) == (
        before["name"],
        before["spec"],
        True,
    )
    assert after["state"] not in ("cancelled", "suspended", "preempted")


@pytest.mark.attack("cancels all jobs of a name, a colleague's among them", stopped_by=OWN_ONLY)
def test_action_by_name_touches_only_ones_own(lab: Lab) -> None:
    hers, his = lab.submit("ada", name="train"), lab.submit("bob", name="train")
    status, answer = lab.ask("bob", "POST", "/jobs/actions", {"action": "cancel", "name": "train"})

    assert (status, answer["done"], [each["id"] for each in answer["refused"]]) == (200, [his], [hers])
    assert lab.job(hers)["state"] not in ("cancelled",)


@pytest.mark.attack("lists a colleague's job among its own in one request", stopped_by=OWN_ONLY)
def test_action_by_ids_touches_only_ones_own(lab: Lab) -> None:
    hers, his = lab.submit("ada"), lab.submit("bob")
    _, answer = lab.ask("bob", "POST", "/jobs/actions", {"action": "cancel", "ids": [hers, his, "999999"]})

    assert answer["done"] == [his]
    assert {each["id"]: each["error"].split(";")[0] for each in answer["refused"]} == {
        "999999": "there is no job '999999'",
        hers: f"job {hers} belongs to 'ada'",
    }


@pytest.mark.attack("cancels a colleague's job on the command line", stopped_by=OWN_ONLY)
def test_command_line_has_the_same_rights(lab: Lab) -> None:
    hers = lab.submit("ada")
    code, said = lab.rota("bob", "cancel", hers)

    assert (code, "belongs to 'ada'" in said) == (2, True)
    assert lab.job(hers)["state"] != "cancelled"


class _Row:
    id, name, tenant, owner = "7", "train", "nlp", "ada"


class _Page:
    """An open page of a visitor: actions are carried out with the visitor's rights, as the dashboard does it."""

    def __init__(self, principal: Principal, service: Any) -> None:
        self.principal, self.service = principal, service

    async def act(self, action: Callable[[Principal, Asker], Awaitable[None]], done: str) -> bool:
        await action(self.principal, self.principal.asker)
        return True


class _Service:
    """Records what would have been done."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.requests = self
        for name in ("cancel", "hold", "release", "requeue"):
            setattr(self, name, lambda job_id, asker, name=name: self._do(name))

    async def _do(self, name: str) -> None:
        self.done.append(name)


@pytest.mark.parametrize(
    "action",
    [
        pytest.param(
            each, marks=pytest.mark.attack(f"{each}s a colleague's job through the dashboard", stopped_by=OWN_ONLY)
        )
        for each in ("cancel", "hold", "release")
    ],
)
def test_dashboard_actions_have_the_same_rights(action: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def yes(*_: object, **__: object) -> bool:
        return True

    monkeypatch.setattr(actions, "confirm", yes)
    service = _Service()
    bob = Principal(name="bob", role=AccessRole.MEMBER, tenants=frozenset({"nlp"}))
    mia = Principal(name="mia", role=AccessRole.MAINTAINER, tenants=frozenset({"nlp"}))

    with pytest.raises(Forbidden, match="belongs to 'ada'"):
        asyncio.run(actions.act_on_job(_Page(bob, service), _Row(), action))  # type: ignore[arg-type]  # a page
    assert service.done == []
    assert asyncio.run(actions.act_on_job(_Page(mia, service), _Row(), action))  # type: ignore[arg-type]  # a page
    assert service.done == [action]


@pytest.mark.parametrize(
    "field",
    [
        pytest.param(
            field,
            marks=pytest.mark.attack(
                f"names a colleague as the {field} of a job",
                stopped_by="the owner is the token's name; files have no such field",
            ),
        )
        for field in ("owner", "user")
    ],
)
def test_owner_cannot_be_forged(lab: Lab, field: str) -> None:
    assert lab.ask("bob", "POST", "/jobs", {**_FILE, field: "ada"})[0] == 422


@pytest.mark.parametrize(
    "field",
    [
        pytest.param(
            field,
            marks=pytest.mark.attack(
                f"changes {field} of a waiting job", stopped_by="updates know only fields of scheduling"
            ),
        )
        for field in ("run", "tenant", "owner", "resources", "env")
    ],
)
def test_update_reaches_no_other_fields(lab: Lab, field: str) -> None:
    lab.running("ada")
    mine = lab.submit("bob", resources={"gpus": 2})

    assert lab.ask("bob", "PATCH", f"/jobs/{mine}", {field: "x"})[0] == 422


@pytest.mark.attack("a viewer acts on jobs", stopped_by="the role of its token")
def test_viewer_changes_nothing(lab: Lab) -> None:
    hers = lab.submit("ada")

    for action in ("cancel", "hold", "requeue"):
        assert lab.ask("vic", "POST", f"/jobs/{hers}/{action}")[0] == 403
    assert lab.ask("vic", "PATCH", f"/jobs/{hers}", {"name": "x"})[0] == 403
    assert lab.ask("vic", "POST", "/jobs/actions", {"action": "cancel", "ids": [hers]})[1]["done"] == []


@pytest.mark.attack(
    "a member of another tenant finds or changes a job", stopped_by="the tenant filter: the job does not exist"
)
def test_other_tenants_find_nothing(lab: Lab) -> None:
    hers = lab.submit("ada", name="secret-project")

    assert lab.ask("eve", "PATCH", f"/jobs/{hers}", {"name": "x"})[0] == 404
    assert lab.ask("eve", "POST", f"/jobs/{hers}/requeue")[0] == 404
    assert lab.ask("eve", "POST", "/jobs/actions", {"action": "cancel", "name": "secret-project"})[0] == 404
    assert lab.ask("eve", "GET", "/jobs?tenant=nlp")[0] == 403
    assert lab.ask("eve", "GET", f"/jobs?array={hers}")[1]["jobs"] == []


@pytest.mark.attack("a member makes itself a maintainer", stopped_by="only admins create tokens")
def test_member_cannot_create_tokens(lab: Lab) -> None:
    wanted = {"name": "bob", "role": "maintainer", "tenants": ["nlp"]}

    assert lab.ask("bob", "POST", "/tokens", wanted)[0] == 403
    assert lab.ask("mia", "POST", "/tokens", wanted)[0] == 403


def test_maintainer_acts_on_all_jobs_of_its_tenant_and_no_other(lab: Lab) -> None:
    hers, theirs = lab.submit("ada"), lab.submit("eve", tenant="vision")

    assert lab.ask("mia", "POST", f"/jobs/{hers}/cancel")[0] == 200
    assert lab.ask("mia", "POST", f"/jobs/{theirs}/cancel")[0] == 404


# -- tenants that do not exist --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        pytest.param(
            "POST",
            "/jobs",
            {"run": "true", "tenant": "nosuch"},
            marks=pytest.mark.attack(
                "an admin's job under a name without limits", stopped_by="unknown tenants are refused"
            ),
        ),
        pytest.param(
            "POST",
            "/jobs?dry_run=true",
            {"run": "true", "tenant": "nosuch"},
            marks=pytest.mark.attack("a dry run for an unknown tenant", stopped_by="unknown tenants are refused"),
        ),
        pytest.param(
            "GET",
            "/jobs?tenant=nosuch",
            None,
            marks=pytest.mark.attack(
                "a filter that finds nothing and says nothing", stopped_by="unknown tenants are refused"
            ),
        ),
        pytest.param(
            "POST",
            "/tokens",
            {"name": "x", "tenants": ["nlp", "nosuch"]},
            marks=pytest.mark.attack(
                "a token for a tenant that is created later", stopped_by="unknown tenants are refused"
            ),
        ),
    ],
)
def test_unknown_tenant_is_refused_for_admins_too(lab: Lab, method: str, path: str, body: object) -> None:
    status, answer = lab.ask("admin", method, path, body)

    assert status == 422
    assert answer["error"] == "tenant: there is no tenant 'nosuch'; an admin can add it: rota tenants add nosuch"


@pytest.mark.attack(
    "takes another user's jobs over by removing their tenant", stopped_by="a tenant with unfinished jobs stays"
)
def test_tenant_with_jobs_is_not_removed(lab: Lab) -> None:
    lab.ask("admin", "PUT", "/tenants/robots", {})
    lab.submit("admin", tenant="robots")

    assert lab.ask("admin", "DELETE", "/tenants/robots")[0] == 422
    assert lab.ask("admin", "DELETE", "/tenants/nlp")[0] == 422
    lab.clear()
    assert lab.ask("admin", "DELETE", "/tenants/robots")[0] == 200
