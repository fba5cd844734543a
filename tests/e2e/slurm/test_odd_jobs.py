"""Jobs beyond the usual, on a real Slurm: whole nodes, long arrays, other requests than before, others' preemption."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial

import pytest
import yaml

from e2e.slurm.bed import Shape, SlurmBed
from e2e.slurm.conftest import Launch, empty
from e2e.slurm.programs import NoSlurm
from managers import eventually
from rota.core.errors import Unavailable
from rota.drivers.slurm.submit_script import submit_script

pytestmark = pytest.mark.slow
MANAGED = "--partition=rota"
SQUARES = [number * number for number in range(1, 31)]
"""Tasks whose list is longer than the 64 characters that Slurm's commands print of it without being asked for more."""


def test_long_array_runs_whole(slurm: SlurmBed, launch: Launch) -> None:
    rota = launch(slurm, "run", "--release-after", "0")
    tasks = ",".join(map(str, SQUARES))
    array = slurm.submit("true", MANAGED, "--gres=gpu:1", f"--array={tasks}")

    rota.wait({f"{array}_{task}": "succeeded" for task in SQUARES}, 120)


@pytest.mark.long
def test_whole_nodes_and_short_jobs_are_followed(slurm: SlurmBed, launch: Launch) -> None:
    """The twin looks rarely here: some jobs begin and end between two looks, one of them comes and goes."""
    twin = launch(slurm, "observe", "--every", "4s")
    alone = slurm.submit("sleep 15", "--exclusive", "--gres=gpu:1")
    twin.wait({alone: "running"})
    ended = {slurm.submit(f"exit {code}", "--gres=gpu:1"): state for code, state in ((0, "succeeded"), (3, "failed"))}

    slurm.wait([*ended])
    twin.wait({**ended, alone: "running"}, 60)
    twin.wait({alone: "succeeded"}, 60)
    about = slurm.do("scontrol", "-o", "show", "job", next(iter(ended)))
    ran = next(word for word in about.split() if word.startswith("StartTime=")).partition("=")[2]
    assert twin.client.job(next(iter(ended)))["started"].startswith(ran)


@pytest.mark.long
def test_exclusive_job_is_placed_and_ends(slurm: SlurmBed, launch: Launch) -> None:
    rota = launch(slurm, "run", "--release-after", "0")
    alone = slurm.submit("sleep 3", MANAGED, "--exclusive", "--gres=gpu:1")
    rota.wait({alone: "running"})
    assert "read again" not in rota.log.read_text()

    rota.wait({alone: "succeeded"})


@pytest.mark.long
@pytest.mark.parametrize("verb", ["observe", "run"])
def test_request_that_a_user_changes_is_changed_here(verb: str, slurm: SlurmBed, launch: Launch) -> None:
    options = ("--release-after", "0") if verb == "run" else ()
    rota = launch(slurm, verb, *options)
    first = slurm.submit("sleep 300", MANAGED, "--gres=gpu:4", "-N2")
    if verb == "observe":
        slurm.do("scontrol", "release", first)
    rota.wait({first: "running"})
    job = slurm.submit("true", MANAGED, "--gres=gpu:1")
    waits = "waiting" if verb == "run" else "held"
    rota.wait({job: waits})

    def is_known(field: str, value: object) -> bool:
        try:
            return rota.states().get(job) == waits and rota.client.job(job)[field] == value
        except Unavailable:
            return False  # a term begins

    slurm.do("scontrol", "update", f"jobid={job}", "name=other")
    eventually(partial(is_known, "name", "other"), within_s=60)
    slurm.do("scontrol", "update", f"jobid={job}", "gres=gpu:3")
    eventually(partial(is_known, "gpus", 3), within_s=60)
    slurm.do("scontrol", "update", f"jobid={job}", "reqnodelist=n1")
    if verb == "run":
        eventually(lambda: "left to Slurm" in rota.log.read_text(), within_s=60)
        slurm.do("scancel", first)
        assert slurm.wait([job]) == {job: "COMPLETED"}


@pytest.mark.long
def test_dependencies_of_all_kinds_are_met(slurm: SlurmBed, launch: Launch) -> None:
    rota = launch(slurm, "run", "--release-after", "0")
    array = slurm.submit("sleep 1", MANAGED, "--gres=gpu:1", "--array=0-1")
    failing = slurm.submit("exit 3", MANAGED, "--gres=gpu:1")
    after = {
        kind: slurm.submit("true", MANAGED, "--gres=gpu:1", "--job-name=one", *options)
        for kind, options in {
            "array": (f"--dependency=afterok:{array}",),
            "either": (f"--dependency=afterok:{failing}?afterok:{array}",),
            "not ok": (f"--dependency=afternotok:{failing}",),
            "start": (f"--dependency=after:{array}",),
            "singleton": ("--dependency=singleton",),
        }.items()
    }
    pairs = slurm.submit("true", MANAGED, "--gres=gpu:1", "--array=0-1", f"--dependency=aftercorr:{array}")
    never = slurm.submit("true", MANAGED, "--gres=gpu:1", f"--dependency=afterok:{failing}")

    rota.wait({**dict.fromkeys(after.values(), "succeeded"), f"{pairs}_0": "succeeded", f"{pairs}_1": "succeeded"}, 150)
    assert rota.states()[never] == "held"


@pytest.mark.long
def test_job_without_a_partition_is_held_in_the_default_one(slurm: SlurmBed) -> None:
    """What runs in the default partition alone is held where that is Rota's, and not what may run elsewhere too."""
    script = slurm.folder / "job_submit.lua"
    before = script.read_text()
    script.write_text(submit_script(["main"]))  # read again by slurmctld, for it has changed
    try:
        held, free = slurm.submit("true"), slurm.submit("true", "--partition=main,rota")
        assert slurm.wait([free]) == {free: "COMPLETED"}
        assert slurm.state(held) == "PENDING"
        assert "AdminComment=rota" in slurm.do("scontrol", "-o", "show", "job", held)
    finally:
        script.write_text(before)


@pytest.mark.long
def test_heterogeneous_job_is_left_to_slurm(slurm: SlurmBed, launch: Launch) -> None:
    rota = launch(slurm, "run", "--release-after", "0")
    parts = ("--gres=gpu:1", "--ntasks=1", ":", "--partition=rota", "--gres=gpu:2", "--ntasks=1")
    job = slurm.submit("sleep 2", MANAGED, *parts)

    assert slurm.wait([job]) == {job: "COMPLETED"}
    assert "heterogeneous jobs are left to Slurm" in rota.log.read_text()


@pytest.mark.long
def test_reservation_is_listed_and_keeps_a_job_off_in_the_forecast(slurm: SlurmBed, launch: Launch) -> None:
    """Both nodes are reserved in three minutes: what ends before that can start, what does not waits for its end."""
    reserve = ("scontrol", "create", "reservation", "users=root", "starttime=now+3minutes", "duration=30")
    slurm.do(*reserve, "ReservationName=course", "nodes=ALL")
    try:
        twin = launch(slurm, "observe")
        eventually(lambda: "course" in twin.rota("reservations").stdout, within_s=60, every_s=0.5)
        first = slurm.submit("sleep 60", "--gres=gpu:4", "-N2", "--time=1")
        twin.wait({first: "running"})
        long = slurm.submit("sleep 1", "--gres=gpu:4", "--time=10")
        twin.wait({long: "waiting"})

        def starts_late() -> bool:
            told = twin.client.why(long)["expected"]
            if not told or not told["usual"]:
                return False
            begin = slurm.do("scontrol", "show", "reservation", "course", "--oneliner").split("EndTime=")[1].split()[0]
            usual = datetime.fromisoformat(told["usual"]).replace(tzinfo=None)
            return usual >= datetime.fromisoformat(begin)

        eventually(starts_late, within_s=90, every_s=1.0)
    finally:
        slurm.do("scancel", "--user=root")
        eventually(partial(slurm.can, "scontrol", "delete", "ReservationName=course"), within_s=60)


@pytest.fixture(scope="module")
def preempting_bed() -> Iterator[SlurmBed]:
    """A cluster that gives out cores and GPUs, but no memory, and where one QOS preempts the others."""
    settings = {"SelectTypeParameters": "CR_Core", "PreemptType": "preempt/qos", "PreemptMode": "REQUEUE"}
    try:
        bed = SlurmBed(Shape(settings={**settings, "DefMemPerCPU": "0"}), accounting=True)
    except NoSlurm as error:
        pytest.skip(str(error))
    bed.start()
    bed.add_qos("urgent", 10, "preempt=normal")
    yield bed
    bed.stop()


@pytest.mark.long
@pytest.mark.parametrize("verb", ["observe", "run"])
def test_job_that_slurm_preempts_waits_here_and_goes_on(verb: str, preempting_bed: SlurmBed, launch: Launch) -> None:
    bed = preempting_bed
    options = ("--release-after", "0") if verb == "run" else ()
    rota = launch(bed, verb, *options)
    where = (MANAGED,) if verb == "run" else ()
    jobs = [bed.submit("sleep 8", *where, "--gres=gpu:2", "--requeue", "--time=1") for _ in range(4)]
    rota.wait(dict.fromkeys(jobs, "running"), 60)  # two of them on each node, though each is said to want its memory

    urgent = bed.submit("sleep 3", "--qos=urgent", "--gres=gpu:4", "-N2", "--time=1")
    eventually(lambda: bed.state(urgent) in ("RUNNING", "COMPLETED"), within_s=60)
    assert bed.wait([urgent, *jobs], 240) == dict.fromkeys([urgent, *jobs], "COMPLETED")
    rota.wait(dict.fromkeys(jobs, "succeeded"), 60)
    empty(bed)


@pytest.mark.long
def test_accounts_that_change_are_the_tenants_and_those_of_other_clusters_are_not(
    accounting_slurm: SlurmBed, launch: Launch
) -> None:
    slurm = accounting_slurm
    slurm.do("sacctmgr", "-i", "add", "cluster", "other")
    slurm.do("sacctmgr", "-i", "add", "account", "vision", "cluster=other", "fairshare=9", "GrpTRES=gres/gpu=1")
    twin = launch(slurm, "observe")
    known = yaml.safe_load(twin.rota("slurm", "cluster").stdout)["tenants"]
    assert {name: known[name]["weight"] for name in ("vision", "nlp")} == {"vision": 3, "nlp": 1}
    assert "limit" not in known["vision"]

    slurm.do("sacctmgr", "-i", "modify", "account", "vision", "cluster=bed", "set", "GrpTRES=gres/gpu=5")
    eventually(lambda: "accounts have changed" in twin.log.read_text(), within_s=150, every_s=1.0)
