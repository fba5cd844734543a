"""What administrators do with jobs that run on a real Slurm: suspend and resume, other limits, fewer nodes."""

from __future__ import annotations

from datetime import datetime

import pytest

from e2e.slurm.bed import SlurmBed
from e2e.slurm.conftest import Launch
from e2e.slurm.twin import Twin
from managers import eventually
from rota.core.errors import Unavailable

pytestmark = [pytest.mark.slow, pytest.mark.long]
MANAGED = "--partition=rota"


def expected_end(twin: Twin, job: str) -> datetime | None:
    """When a job is expected to end; None while that is not known."""
    try:
        told = twin.client.why(job)["expected"]
    except Unavailable:
        return None  # a term begins
    return datetime.fromisoformat(told["end"]["usual"]) if told and told["end"] and told["end"]["usual"] else None


def free_gpus(twin: Twin) -> dict[str, float]:
    try:
        return {node["id"]: node["free_gpus"] for node in twin.client.nodes()}
    except Unavailable:
        return {}


def test_suspended_job_is_shown_as_such_and_resumed(slurm: SlurmBed, launch: Launch) -> None:
    twin = launch(slurm, "observe")
    job = slurm.submit("sleep 20", "--gres=gpu:4", "-N2", "--time=5")
    twin.wait({job: "running"})
    eventually(lambda: expected_end(twin, job), within_s=60, every_s=0.5)
    slurm.do("scontrol", "suspend", job)

    twin.wait({job: "suspended"})
    assert f"job {job} is suspended: Slurm: SUSPENDED" in twin.rota("why", job).stdout
    assert free_gpus(twin) == {"n1": 0, "n2": 0}
    eventually(lambda: expected_end(twin, job) is None, within_s=60, every_s=0.5)
    twin.kill()
    twin.start()
    twin.wait({job: "suspended"})

    slurm.do("scontrol", "resume", job)
    twin.wait({job: "running"})
    twin.wait({job: "succeeded"}, 60)
    assert free_gpus(twin) == {"n1": 4, "n2": 4}


def test_changed_limit_of_a_running_job_changes_what_is_expected(slurm: SlurmBed, launch: Launch) -> None:
    twin = launch(slurm, "observe")
    first = slurm.submit("sleep 300", "--gres=gpu:4", "-N2", "--time=10")
    twin.wait({first: "running"})
    waits = slurm.submit("true", "--gres=gpu:1", "--time=1")
    twin.wait({waits: "waiting"})
    before = eventually(lambda: expected_end(twin, waits), within_s=60, every_s=0.5)
    assert before is not None

    slurm.do("scontrol", "update", f"jobid={first}", "timelimit=600")

    def is_later() -> bool:
        found = expected_end(twin, waits)
        return found is not None and (found - before).total_seconds() > 600.0

    eventually(is_later, within_s=90, every_s=0.5)


@pytest.mark.parametrize("verb", ["observe", "run"])
def test_nodes_that_a_job_gives_back_are_free(verb: str, slurm: SlurmBed, launch: Launch) -> None:
    options = ("--release-after", "0") if verb == "run" else ()
    where = (MANAGED,) if verb == "run" else ()
    rota = launch(slurm, verb, *options)
    job = slurm.submit("sleep 300", *where, "--gres=gpu:4", "-N2")
    rota.wait({job: "running"})
    assert free_gpus(rota) == {"n1": 0, "n2": 0}

    slurm.do("scontrol", "update", f"jobid={job}", "numnodes=1")
    eventually(lambda: free_gpus(rota) == {"n1": 0, "n2": 4}, within_s=60)
    after = slurm.submit("sleep 300", *where, "--gres=gpu:4")
    rota.wait({job: "running", after: "running"}, 60)
    assert (slurm.state(job), slurm.state(after)) == ("RUNNING", "RUNNING")
    assert free_gpus(rota) == {"n1": 0, "n2": 0}
