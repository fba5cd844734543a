"""Attacks of one user on the work of others: by priority, by arriving later, by acting on what is not theirs.

A real manager with tokens, real HTTP and the real command line. `ada` is the victim, `bob` the attacker; both are
members of the tenant `nlp`. Nothing of ada's may change.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest

from attacks.lab import MIN_RUN_S, Lab
from managers import eventually

Json = dict[str, Any]
OWN_ONLY = "owner-only rights: members change their own jobs"
CAP = "the cap of priorities by tenant and role"
GUARD = "the preemption guard: a job that can't resume is never stopped"


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
    assert (status, "the priority 5" in answer["error"]) == (422, True)


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


@pytest.mark.attack("ends a failing job and waits for an admin to requeue it", stopped_by="only its owner can")
def test_ended_job_of_another_is_not_requeued(lab: Lab) -> None:
    hers = lab.submit("ada", "exit 3")
    eventually(lambda: lab.job(hers)["state"] == "failed")

    status, answer = lab.ask("admin", "POST", f"/jobs/{hers}/requeue")

    assert (status, "it would run as that user" in answer["error"]) == (403, True)
    assert lab.ask("ada", "POST", f"/jobs/{hers}/requeue")[0] == 200


@pytest.mark.attack("asks for an endless time to stop", stopped_by="a bound of the grace")
def test_grace_without_end_is_refused(lab: Lab) -> None:
    status, answer = lab.ask("bob", "POST", "/jobs", {"run": "true", "checkpoint": {"grace": "9999999h"}})

    assert (status, "checkpoint.grace" in answer["error"]) == (422, True)
