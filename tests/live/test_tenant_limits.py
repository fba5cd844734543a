"""How long and large the jobs of a tenant may be: as a calculation, and on a real manager over a kill."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from accounts.test_usage import client_of
from managers import Manager
from rota.core.errors import RotaError
from rota.core.model.job import Elastic, Job, JobId, Role
from rota.live.intake.tenant_limits import TenantLimits
from rota.sdk.client import Refused


def job(gpus: int = 1, tasks: int = 1, **fields: Any) -> Job:
    return Job(id=JobId("1"), roles=(Role(device_milli=gpus * 1000, count=tasks),), **fields)


def test_a_job_without_a_time_limit_gets_the_tenants() -> None:
    limits = TenantLimits(max_time_s=60.0)

    assert limits.admitted(job()).time_limit_s == 60.0
    assert limits.admitted(job(time_limit_s=30.0)).time_limit_s == 30.0
    assert TenantLimits().admitted(job()).time_limit_s is None


@pytest.mark.parametrize(
    ("limits", "asked", "message"),
    [
        (
            TenantLimits(max_time_s=60.0),
            job(time_limit_s=61.0),
            "time_limit is 61 s; the most in tenant 'default' is 60 s",
        ),
        (TenantLimits(max_gpus_per_job=4), job(gpus=1, tasks=5), "it asks for 5; a job of tenant 'default' may have 4"),
        (TenantLimits(max_gpus_per_job=0), job(), "it asks for 1"),
        (
            TenantLimits(max_gpus_per_job=4),
            job(gpus=2, tasks=2, elastic=Elastic(min_tasks=1, max_tasks=3)),
            "it asks for up to 6; a job of tenant 'default' may have 4",
        ),
    ],
)
def test_a_job_beyond_a_limit_is_refused_in_one_line(limits: TenantLimits, asked: Job, message: str) -> None:
    with pytest.raises(RotaError, match=re.escape(message)):
        limits.admitted(asked)


def test_jobs_at_the_limit_and_without_devices_are_admitted() -> None:
    limits = TenantLimits(max_gpus_per_job=4, max_time_s=60.0)

    assert limits.admitted(job(gpus=4, time_limit_s=60.0)) == job(gpus=4, time_limit_s=60.0)
    assert TenantLimits(max_gpus_per_job=0).admitted(job(gpus=0)).gpus == 0


@pytest.mark.slow
def test_limits_hold_at_submission_update_and_requeue_over_a_kill(tmp_path: Path) -> None:
    manager = Manager(tmp_path, "--emulate", "gpu=4/4").start()
    try:
        early = manager.submit("true", tenant="nlp", resources={"gpus": 3})
        manager.wait(early, "succeeded")
        blocker = manager.submit("sleep 600", tenant="vision", resources={"gpus": 4})
        manager.wait(blocker, "running")
        waiting = manager.submit("true", tenant="nlp", time_limit="3h", resources={"gpus": 1})
        put = manager.rota("tenants", "set", "nlp", "--max-time", "2h", "--max-gpus-per-job", "2")
        assert put.returncode == 0, put.stderr
        assert "max time 2h" in put.stdout
        manager.kill()
        manager.start()

        for asked, why in (
            ({"resources": {"gpus": 3}}, "gpus: it asks for 3; a job of tenant 'nlp' may have 2"),
            ({"time_limit": "3h"}, "time_limit is 10800 s; the most in tenant 'nlp' is 7200 s"),
        ):
            with pytest.raises(Refused, match=re.escape(why)):
                manager.submit("true", tenant="nlp", **asked)
        made = manager.submit("true", tenant="nlp", resources={"gpus": 2})
        other = manager.submit("true", tenant="vision", resources={"gpus": 4}, time_limit="9h")
        assert manager.state(other) == manager.state(made) == "waiting"
        assert manager.state(waiting) == "waiting"
        with pytest.raises(Refused, match="time_limit is 10800 s"):
            manager.client.update(waiting, {"name": "other"})
        manager.client.update(waiting, {"time_limit": "1h"})
        with pytest.raises(Refused, match="it asks for 3"):
            manager.client.act(early, "requeue")

        found = next(each for each in manager.client.tenants() if each["tenant"] == "nlp")
        assert (found["max_time_s"], found["max_gpus_per_job"]) == (7200.0, 2.0)
        with pytest.raises(Refused, match="needs the role admin"):
            client_of(manager, "m", "maintainer", "nlp").put_tenant("nlp", {}, max_time_s=None)
        manager.client.put_tenant("nlp", {}, max_gpus_per_job=None)
        manager.submit("true", tenant="nlp", resources={"gpus": 3})
        entry = next(each for each in manager.client.audit(20) if each["what"] == "tenant-change")
        assert entry["detail"] == "max_time 7200 s, max_gpus_per_job none"
        refused = manager.rota("tenants", "set", "nlp", "--max-gpus-per-job", "many")
        assert refused.returncode == 2
        assert "it must be a number, or none" in refused.stderr
    finally:
        manager.clean_up()
