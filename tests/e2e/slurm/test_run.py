"""Rota decides, a real Slurm carries out."""

from __future__ import annotations

from functools import partial

import pytest

from e2e.slurm.bed import SlurmBed
from e2e.slurm.conftest import Launch
from managers import eventually

pytestmark = pytest.mark.slow
MANAGED = "--partition=rota"


def test_held_jobs_run_where_rota_says_and_end(slurm: SlurmBed, launch: Launch) -> None:
    early = slurm.submit("sleep 1", MANAGED, "--gres=gpu:4", "-N2")
    assert slurm.state(early) == "PENDING"
    rota = launch(slurm, "run", "--release-after", "0")
    bad = slurm.submit("exit 4", MANAGED, "--gres=gpu:1")
    array = slurm.submit("sleep 1", MANAGED, "--gres=gpu:1", "--array=0-3%2")
    free = slurm.submit("sleep 1", "--gres=gpu:1")
    after = slurm.submit("true", MANAGED, f"--dependency=afterany:{bad}")

    tasks = [f"{array}_{index}" for index in range(4)]
    rota.wait({early: "succeeded", bad: "failed", after: "succeeded", **dict.fromkeys(tasks, "succeeded")}, 60)
    assert slurm.wait([free]) == {free: "COMPLETED"}
    assert free not in rota.states()


@pytest.mark.long
def test_user_and_rota_cancel_and_hold(slurm: SlurmBed, launch: Launch) -> None:
    rota = launch(slurm, "run", "--release-after", "0")
    one = slurm.submit("sleep 60", MANAGED, "--gres=gpu:4", "-N2")
    two = slurm.submit("sleep 60", MANAGED, "--gres=gpu:4", "-N2")
    three = slurm.submit("sleep 1", MANAGED, "--gres=gpu:4", "-N2")
    rota.wait({one: "running", two: "waiting", three: "waiting"})

    assert rota.rota("cancel", two).returncode == 0
    eventually(lambda: slurm.state(two) == "CANCELLED")
    assert rota.rota("cancel", one).returncode == 0
    eventually(lambda: slurm.state(one) == "CANCELLED")
    rota.wait({one: "cancelled", two: "cancelled", three: "succeeded"})


@pytest.mark.long
def test_suspended_job_keeps_its_gpus_in_slurm_and_here(slurm: SlurmBed, launch: Launch) -> None:
    rota = launch(slurm, "run", "--release-after", "0")
    one = slurm.submit("sleep 3", MANAGED, "--gres=gpu:4", "-N2")
    rota.wait({one: "running"})
    slurm.do("scontrol", "suspend", one)
    two = slurm.submit("true", MANAGED, "--gres=gpu:1")
    foreign = slurm.submit("true", "--gres=gpu:1")

    rota.wait({one: "suspended", two: "waiting"})
    eventually(lambda: "Reason=Resources" in slurm.do("scontrol", "-o", "show", "job", foreign))
    assert {slurm.state(job) for job in (two, foreign)} == {"PENDING"}
    slurm.do("scontrol", "resume", one)
    rota.wait({one: "succeeded", two: "succeeded"})


@pytest.mark.long
def test_jobs_stay_off_reservations_that_they_would_reach_into(slurm: SlurmBed, launch: Launch) -> None:
    """One node is reserved now and one soon: what ends before that runs there, the others are not even released."""
    reserve = ("scontrol", "create", "reservation", "users=root", "duration=60")
    slurm.do(*reserve, "ReservationName=now", "starttime=now", "nodes=n1")
    slurm.do(*reserve, "ReservationName=later", "starttime=now+20minutes", "nodes=n2")
    try:
        rota = launch(slurm, "run", "--release-after", "0")
        inside = slurm.submit("sleep 5", MANAGED, "--gres=gpu:4", "--reservation=now")
        states = {"n1": "drained", "n2": "up"}
        eventually(lambda: {node["id"]: node["state"] for node in rota.client.nodes()} == states, within_s=60)
        long = slurm.submit("sleep 1", MANAGED, "--gres=gpu:4", "--time=60")
        rota.wait({long: "waiting"})
        short = [slurm.submit("sleep 1", MANAGED, "--gres=gpu:2", "--time=2") for _ in range(4)]

        rota.wait(dict.fromkeys(short, "succeeded"), 60)
        assert slurm.wait([inside]) == {inside: "COMPLETED"}
        assert "n2 is reserved for 1 user from" in rota.rota("why", long).stdout
        about = slurm.do("scontrol", "-o", "show", "job", long)
        assert "Priority=0 " in about
        assert "ReqNodeList=(null)" in about

        slurm.do("scontrol", "delete", "ReservationName=later")
        rota.wait({long: "succeeded"}, 150)
    finally:
        slurm.do("scancel", "--user=root")
        for name in ("now", "later"):
            eventually(partial(_is_gone, slurm, name), within_s=60)


def _is_gone(slurm: SlurmBed, name: str) -> bool:
    slurm.can("scontrol", "delete", f"ReservationName={name}")
    return f"ReservationName={name} " not in slurm.do("scontrol", "show", "reservation", "--oneliner")


@pytest.mark.long
def test_refused_job_keeps_no_devices(slurm: SlurmBed, launch: Launch) -> None:
    slurm.do("scontrol", "update", "PartitionName=rota", "MaxTime=30")
    try:
        rota = launch(slurm, "run", "--release-after", "0")
        long = slurm.submit("sleep 1", MANAGED, "--gres=gpu:4", "-N2", "--time=60")
        short = [slurm.submit("sleep 1", MANAGED, "--gres=gpu:2", "--time=2") for _ in range(4)]

        rota.wait(dict.fromkeys(short, "succeeded"), 60)
        assert slurm.state(long) == "PENDING"
        eventually(lambda: "PartitionTimeLimit" in rota.client.job(long)["message"], within_s=60)
        eventually(lambda: "Slurm did not start it: PartitionTimeLimit" in rota.rota("why", long).stdout, within_s=60)
    finally:
        slurm.do("scancel", "--user=root")
        slurm.do("scontrol", "update", "PartitionName=rota", "MaxTime=INFINITE")


def test_watchdog_releases_what_a_killed_rota_held(slurm: SlurmBed, launch: Launch) -> None:
    rota = launch(slurm, "run", "--release-after", "10s")
    one = slurm.submit("sleep 12", MANAGED, "--gres=gpu:4", "-N2")
    rota.wait({one: "running"})
    two = slurm.submit("sleep 1", MANAGED, "--gres=gpu:1")
    rota.wait({two: "waiting"})

    rota.kill()
    assert slurm.wait([one, two]) == {one: "COMPLETED", two: "COMPLETED"}


@pytest.mark.long
def test_killed_rota_goes_on_where_it_stopped(slurm: SlurmBed, launch: Launch) -> None:
    rota = launch(slurm, "run", "--release-after", "0")
    one = slurm.submit("sleep 6", MANAGED, "--gres=gpu:4", "-N2")
    two = slurm.submit("sleep 1", MANAGED, "--gres=gpu:4", "-N2")
    rota.wait({one: "running", two: "waiting"})
    rota.kill()
    rota.start()

    rota.wait({one: "succeeded", two: "succeeded"}, 60)
    assert "Restarts=0" in slurm.do("scontrol", "-o", "show", "job", one)
