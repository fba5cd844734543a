"""Attacks of one user on the jobs, rights and tenants of others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from attacks.lab import Lab
from managers import eventually
from rota.api.access import AccessRole, Forbidden, Principal
from rota.live.intake.audit_entry import Asker
from rota.web import actions

Json = dict[str, Any]
OWN_ONLY = "owner-only rights: members change their own jobs"
CAP = "the cap of priorities by tenant and role"
GUARD = "the preemption guard: a job that can't resume is never stopped"
_FILE = {"run": "true", "tenant": "nlp"}


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
    victim = lab.submit("ada", "sleep 600", resources={"gpus": 2})
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


@pytest.mark.attack(
    "reads in a colleague's job file what came from the colleague's shell", stopped_by="values of variables are masked"
)
def test_variables_of_a_colleague_are_hidden(lab: Lab) -> None:
    job_id = lab.submit("ada", env={"PATH": "/home/ada/bin", "KEY": {"secret": "hush"}})
    hidden = {"PATH": "***", "KEY": "***"}
    shown = {"PATH": "/home/ada/bin", "KEY": {"secret": "***"}}

    for name, env in (("bob", hidden), ("vic", hidden), ("ada", shown), ("mia", shown), ("admin", shown)):
        assert lab.ask(name, "GET", f"/jobs/{job_id}")[1]["spec"]["env"] == env, name
    assert "/home/ada" not in lab.rota("bob", "show", job_id, "-o", "json")[1]


def test_tenants_of_a_token_can_be_given_together_and_a_wrong_one_is_named(lab: Lab) -> None:
    code, said = lab.rota("admin", "token", "create", "kim", "--tenant", "nlp,vision")
    assert code == 0, said
    assert lab.ask("admin", "GET", "/tokens")[1][-1]["tenants"] == ["nlp", "vision"]

    status, answer = lab.ask("admin", "POST", "/tokens", {"name": "kim", "tenants": ["nlp vision"]})
    assert status == 422
    assert answer["error"].startswith("tenants.0: value error, not a name: 'nlp vision'; use up to 128 letters")


def test_requeue_of_a_job_whose_priority_was_raised_says_the_way_out(lab: Lab) -> None:
    job_id = lab.submit("ada", "sleep 600", resources={"gpus": 2})
    waits = lab.submit("ada", "true", resources={"gpus": 2})
    assert lab.ask("admin", "PATCH", f"/jobs/{waits}", {"priority": 3})[0] == 200
    lab.ask("ada", "POST", f"/jobs/{job_id}/cancel")
    eventually(lambda: lab.job(waits)["state"] == "succeeded")

    status, answer = lab.ask("ada", "POST", f"/jobs/{waits}/requeue")

    assert status == 422
    assert "submit it again with priority 0, or ask an admin to raise the cap" in answer["error"]


def test_refused_submission_costs_little_of_the_rate(lab: Lab) -> None:
    many = [{"run": "true", "tenant": "nlp"}] * 999
    for _ in range(20):  # twice the burst, were they counted in full
        status, answer = lab.ask("ada", "POST", "/jobs", [*many, {"run": "", "tenant": "nlp"}])
        assert status == 422, answer
    assert "at most 1000 (limits.jobs_at_once)" in lab.ask("ada", "POST", "/jobs", many * 2)[1]["error"]
