"""Changing jobs of a real manager: updates, requeues, many at once, arrays as one row, reasons without forecasts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from machine_load import slowness
from managers import Manager, eventually
from rota.sdk.client import Refused

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    """A manager of two devices."""
    made = Manager(tmp_path_factory.mktemp("two"), "--emulate", "gpu=2/2", "--cgroups", "off").start()
    yield made
    made.clean_up()


@pytest.fixture
def busy(two: Manager) -> Iterator[Manager]:
    """The manager with a job on both devices."""
    first = two.submit("sleep 600", name="first", resources={"gpus": 2})
    two.wait(first, "running")
    yield two
    ids = [job["id"] for job in two.client.jobs()]
    two.client.act_on_all("cancel", ids=ids)
    eventually(lambda: not list(two.client.jobs()))


def test_update_changes_a_waiting_job_and_outlives_the_manager(busy: Manager) -> None:
    waits = busy.submit("sleep 600", name="waits", resources={"gpus": 2})
    later = busy.submit("sleep 600", name="later", resources={"gpus": 2})
    busy.client.update(later, {"priority": 3, "name": "sooner", "estimate": "5m", "preemptible": True})
    busy.kill()
    busy.start()

    found = busy.client.job(later)
    assert (found["name"], found["priority"], found["spec"]["estimate"]) == ("sooner", 3, "5m")
    assert busy.client.why(later)["expected"]["position"] == 1
    assert busy.client.why(waits)["expected"]["position"] == 2
    assert [job["id"] for job in busy.client.jobs(name="sooner")] == [later]
    busy.client.update(later, {"estimate": None})
    assert "estimate" not in busy.client.job(later)["spec"]


def test_update_is_refused_for_running_jobs_and_bad_values(busy: Manager) -> None:
    first = next(iter(busy.client.jobs()))["id"]
    waits = busy.submit("true", resources={"gpus": 2})

    with pytest.raises(Refused, match=f"job {first} is running; only a job that waits or is held can be updated"):
        busy.client.update(first, {"priority": 1})
    with pytest.raises(Refused, match="priority"):
        busy.client.update(waits, {"priority": "high"})
    with pytest.raises(Refused, match="nothing to change"):
        busy.client.update(waits, {})


def test_requeue_stops_a_running_job_and_runs_an_ended_one_again(busy: Manager) -> None:
    first = next(iter(busy.client.jobs()))["id"]
    quick = busy.submit("true", name="quick", resources={"gpus": 2})

    assert busy.client.act(first, "requeue")["id"] == first
    assert busy.wait(quick)["state"] == "succeeded"
    assert eventually(lambda: busy.client.job(first)["attempt"] == 2)
    again = busy.client.act(quick, "requeue")
    assert (again["id"] != quick, again["name"]) == (True, "quick")
    with pytest.raises(Refused, match="only a job that runs or has ended can be requeued"):
        busy.client.act(again["id"], "requeue")


def test_array_is_one_row_that_opens(busy: Manager) -> None:
    ids = busy.client.submit(
        [{"run": "true", "name": "sweep", "array": index, "resources": {"gpus": 1}} for index in range(4)]
    )
    (row, first) = list(busy.client.jobs(collapse="true"))
    opened = list(busy.client.jobs(array=ids[0]))

    assert (row["array"]["id"], row["array"]["states"], first["name"]) == (ids[0], {"waiting": 4}, "first")
    assert [job["id"] for job in opened] == ids[::-1]
    assert [job["array"]["index"] for job in opened] == [3, 2, 1, 0]
    table = busy.rota("ps").stdout.splitlines()
    assert len(table) == 3
    assert "sweep (4 jobs)" in table[1]
    assert len(busy.rota("ps", "--array", ids[0]).stdout.splitlines()) == 5
    assert busy.client.act_on_all("cancel", name="sweep")["done"] == ids
    assert list(busy.client.jobs(array=ids[0])) == []
    assert len(list(busy.client.jobs(array=ids[0], all=True))) == 4


def test_job_without_forecast_says_why(busy: Manager) -> None:
    first = next(iter(busy.client.jobs()))["id"]
    stubborn = {"run": "trap '' TERM; sleep 600", "checkpoint": {"grace": "3s"}}
    kept = busy.client.submit(stubborn)[0]
    busy.wait(kept, "running")
    held = busy.client.submit({"run": "true"}, held=True)[0]
    waits = busy.submit("true", resources={"gpus": 2})

    busy.client.act(kept, "cancel")
    said = {job_id: busy.client.why(job_id)["expected"] for job_id in (first, kept, held)}
    assert all(each["usual"] is None and each["reason"] for each in said.values()), said
    assert busy.client.why(waits)["expected"]["usual"] is not None


def test_ended_job_with_secrets_is_not_requeued(busy: Manager) -> None:
    job_id = busy.client.submit({"run": "true", "env": {"KEY": {"secret": "hush"}}})[0]
    busy.wait(job_id)

    with pytest.raises(Refused, match="had secrets, which were deleted at its end"):
        busy.client.post(f"/jobs/{job_id}/requeue")


def test_options_of_submit_reach_the_job(busy: Manager) -> None:
    options = ("--estimate", "2h", "--checkpoint", "ckpt", "--preemptible", "--gpus", "2")
    job_id = busy.rota("submit", *options, "--", "true").stdout.strip()
    spec = busy.client.job(job_id)["spec"]

    assert (spec["estimate"], spec["checkpoint"], spec["preemptible"]) == ("2h", {"path": "ckpt"}, True)


def test_dry_run_of_an_impossible_job_gives_the_reason(busy: Manager) -> None:
    answer = busy.client.try_out({"run": "true", "resources": {"gpus": 1, "gpu": "h100"}})

    assert answer["expected"]["usual"] is None
    assert answer["reason"]["code"] == "no-such-type"


def test_type_of_device_without_a_number_is_refused(busy: Manager) -> None:
    """As when `gpu: 2` is written for `gpus: 2`: the job would wait for ever."""
    with pytest.raises(Refused, match="`gpu` names the type '2' of 0 devices; say how many with `gpus`"):
        busy.client.submit({"run": "true", "resources": {"gpu": 2}})


def test_journal_of_a_guarded_manager_replays(busy: Manager, tmp_path: Path) -> None:
    busy.submit("true", resources={"gpus": 2}, priority=5)
    journal = tmp_path / "journal.jsonl"
    journal.write_bytes(b"".join(busy.client.journal()))
    replayed = busy.rota("sim", "--replay", str(journal))

    assert replayed.returncode == 0, replayed.stdout + replayed.stderr


STUBBORN = "trap '' TERM; echo up; while :; do sleep 0.1; done"
SAVES = {"signal": "SIGTERM", "grace": "30s"}


def test_job_that_ignores_its_signal_is_shown_as_being_cancelled_and_ends_at_once_by_force(two: Manager) -> None:
    job_id = two.submit(STUBBORN, checkpoint=SAVES)
    eventually(lambda: two.said(job_id) == "up\n")

    two.client.act(job_id, "cancel")

    assert two.client.job(job_id)["state_text"] == "running, being cancelled"
    assert [job["state_text"] for job in two.client.jobs()] == ["running, being cancelled"]
    begun = time.monotonic()
    assert two.client.act_on_all("cancel", ids=[job_id], force=True)["done"] == [job_id]
    assert two.wait(job_id)["state"] == "cancelled"
    assert time.monotonic() - begun < 10.0 * slowness()
    with pytest.raises(Refused, match="force: it is for cancel, not for hold"):
        two.client.act_on_all("hold", ids=[job_id], force=True)


def test_cancellation_shortens_the_grace_of_a_job_that_stops_for_others(two: Manager) -> None:
    """Ends it by force, which has the shortest grace of all, while it saves for a requeue."""
    job_id = two.submit(STUBBORN, checkpoint=SAVES)
    eventually(lambda: two.said(job_id) == "up\n")
    two.client.act(job_id, "requeue")

    begun = time.monotonic()
    two.client.act_on_all("cancel", ids=[job_id], force=True)

    assert two.wait(job_id)["state"] == "cancelled"
    assert time.monotonic() - begun < 10.0 * slowness()


def test_empty_list_and_no_tenant_are_refused_by_name(two: Manager) -> None:
    with pytest.raises(Refused, match="the list has no jobs; give at least one"):
        two.client.post("/jobs", [])
    with pytest.raises(Refused, match=r"job: tenant: it is given without a value \(null\)"):
        two.client.post("/jobs", {"run": "true", "tenant": None})
    with pytest.raises(Refused, match="job: tenant: it is false, as YAML reads yes, no, on and off"):
        two.client.post("/jobs", {"run": "true", "tenant": False})
