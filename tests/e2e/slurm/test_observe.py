"""The read-only twin of a real Slurm cluster."""

from __future__ import annotations

import asyncio
import csv
import time
from datetime import datetime
from pathlib import Path

import pytest

import forked
from e2e.slurm.bed import Shape, SlurmBed
from e2e.slurm.conftest import Launch
from e2e.slurm.programs import NoSlurm
from managers import eventually
from rota.drivers.slurm.commands import SlurmCommands, SlurmReader, SlurmRefused
from rota.drivers.slurm.rest import SlurmRest

pytestmark = pytest.mark.slow


def test_twin_follows_slurm_from_submission_to_end(slurm: SlurmBed, launch: Launch) -> None:
    before = slurm.submit("sleep 60", "--gres=gpu:4", "-N2")
    twin = launch(slurm, "observe")

    twin.wait({before: "running"})
    second = slurm.submit("sleep 8", "--gres=gpu:2")
    bad = slurm.submit("sleep 8; exit 3", "--gres=gpu:1")
    held = slurm.submit("true", "--hold")
    later = slurm.submit("true", f"--dependency=afterok:{second}")
    twin.wait({before: "running", second: "waiting", bad: "waiting", held: "held", later: "held"})
    assert {node["free_gpus"] for node in twin.client.nodes()} == {0}
    reason = twin.client.why(second)["reason"]["sentence"]
    assert reason.startswith(("Resources: it is next in line", "Priority: jobs with a higher", "None: not yet"))

    slurm.do("scancel", before)
    twin.wait({before: "cancelled", second: "succeeded", bad: "failed", later: "succeeded", held: "held"}, 60)
    assert "FAILED, exit code 3" in twin.client.job(bad)["message"]
    assert {node["free_gpus"] for node in twin.client.nodes()} == {4}


@pytest.mark.long
def test_job_file_is_submitted_to_slurm_and_runs_as_it_says(slurm: SlurmBed, launch: Launch) -> None:
    twin = launch(slurm, "observe")
    (twin.folder / "train.yaml").write_text(
        "name: train\nworkers: 2\nresources: {gpus: 2, cpus: 3}\ntime_limit: 5m\nenv: {GREETING: it's me}\n"
        'run: echo "$GREETING $ROTA_RANK of $ROTA_TASKS with $SLURM_CPUS_PER_TASK" > out-$ROTA_RANK\n'
    )

    done = twin.rota("submit", "--slurm", "train.yaml")
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    assert slurm.wait([job]) == {job: "COMPLETED"}
    said = [(twin.folder / f"out-{rank}").read_text().strip() for rank in range(2)]
    assert said == ["it's me 0 of 2 with 3", "it's me 1 of 2 with 3"]
    about = slurm.do("scontrol", "-o", "show", "job", job)
    assert "JobName=train" in about
    assert "TimeLimit=00:05:00" in about
    assert "TresPerTask=gres:gpu:2" in about

    (twin.folder / "pods.yaml").write_text("roles: {ps: {count: 1, run: 'true'}}\n")
    before = slurm.do("squeue", "-h")
    refused = twin.rota("submit", "--slurm", "pods.yaml")
    assert (refused.returncode, slurm.do("squeue", "-h")) == (2, before)
    assert "roles has no counterpart in a batch job" in refused.stderr


@pytest.mark.long
def test_array_requeue_and_nodes_are_followed(slurm: SlurmBed, launch: Launch) -> None:
    twin = launch(slurm, "observe")
    array = slurm.submit("sleep 60", "--array=0-2%2", "--gpus=1", "--requeue")

    twin.wait({f"{array}_0": "running", f"{array}_1": "running", f"{array}_2": "waiting"})
    slurm.do("scontrol", "requeuehold", f"{array}_0")
    twin.wait({f"{array}_0": "held", f"{array}_2": "running"})

    slurm.do("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=test")
    eventually(lambda: {node["state"] for node in twin.client.nodes()} >= {"drained"}, within_s=120)
    slurm.do("scontrol", "update", "NodeName=n2", "State=RESUME")
    eventually(lambda: {node["state"] for node in twin.client.nodes()} == {"up"}, within_s=120)


@pytest.mark.long
def test_twin_writes_nothing_and_goes_on_after_a_kill(slurm: SlurmBed, launch: Launch) -> None:
    twin = launch(slurm, "observe")
    job = slurm.submit("sleep 60", "--gres=gpu:1")
    twin.wait({job: "running"})

    refused = twin.rota("cancel", job)
    assert refused.returncode == 2
    assert "only observes Slurm" in refused.stderr
    assert slurm.state(job) == "RUNNING"

    twin.kill()
    slurm.do("scancel", job)
    again = slurm.submit("sleep 60", "--gres=gpu:1")
    eventually(lambda: slurm.state(again) == "RUNNING")
    twin.start()
    twin.wait({job: "cancelled", again: "running"})


@pytest.mark.long
def test_forecast_of_a_start_has_a_range(slurm: SlurmBed, launch: Launch) -> None:
    twin = launch(slurm, "observe")
    first = slurm.submit("sleep 60", "--gres=gpu:4", "-N2", "--time=2")
    twin.wait({first: "running"})
    second = slurm.submit("true", "--gres=gpu:1", "--time=1")
    twin.wait({second: "waiting"})

    expected = twin.client.why(second)["expected"]
    assert expected is not None
    text = twin.rota("why", second).stdout
    assert "expected start" in text
    assert "90%" in text


@pytest.mark.long
def test_forecasts_take_the_queue_in_the_order_of_slurms_priorities(slurm: SlurmBed, launch: Launch) -> None:
    twin = launch(slurm, "observe")
    whole = ("--gres=gpu:4", "-N2", "--time=1")
    first = slurm.submit("sleep 120", *whole)
    twin.wait({first: "running"})
    early, late = (slurm.submit("sleep 30", *whole) for _ in range(2))
    twin.wait({early: "waiting", late: "waiting"})

    def starts_first(one: str, other: str) -> bool:
        told = [twin.client.why(job)["expected"] for job in (one, other)]
        return all(each and each["usual"] for each in told) and told[0]["usual"] < told[1]["usual"]

    eventually(lambda: starts_first(early, late), within_s=60)
    slurm.do("scontrol", "update", f"jobid={early}", "priority=1")
    eventually(lambda: starts_first(late, early), within_s=60)


@pytest.mark.long
def test_twin_keeps_its_state_while_slurmctld_is_away(slurm: SlurmBed, launch: Launch) -> None:
    twin = launch(slurm, "observe")
    job = slurm.submit("sleep 120", "--gres=gpu:1")
    twin.wait({job: "running"})
    saved, since_s = slurm.folder / "state" / "job_state", time.time()
    slurm.do("scontrol", "update", f"jobid={job}", "comment=saved")  # what has changed is saved once more
    eventually(lambda: saved.exists() and saved.stat().st_mtime > since_s, within_s=60)  # a killed slurmctld forgets

    slurm.kill("slurmctld")
    eventually(lambda: "can't be read" in twin.log.read_text(), within_s=90)
    assert twin.states()[job] == "running"
    slurm.start_controller()
    eventually(lambda: "answers again" in twin.log.read_text(), within_s=90)
    assert twin.states()[job] == "running"


@pytest.mark.long
def test_first_forecasts_know_from_the_accounting_what_jobs_took(accounting_slurm: SlurmBed, launch: Launch) -> None:
    quick = ("--job-name=quick", "--gres=gpu:1", "--time=10", "--account=vision")
    past = [accounting_slurm.submit("sleep 1", *quick) for _ in range(8)]
    failed = accounting_slurm.submit("exit 3", *quick)
    accounting_slurm.wait([*past, failed])
    ask = ("sacct", "-nPX", "-S", "now-1hours", "--format=State", "--name=quick")
    eventually(lambda: accounting_slurm.do(*ask).split().count("COMPLETED") == 8, every_s=0.5)

    twin = launch(accounting_slurm, "observe")
    known = {job["id"]: job for job in twin.client.jobs(all=True)}
    assert {known[job]["state"] for job in past} == {"succeeded"}
    assert (known[failed]["state"], known[failed]["message"]) == ("failed", "Slurm: FAILED")
    blocking = accounting_slurm.submit("sleep 60", "--job-name=quick", "--gres=gpu:4", "-N2", "--time=10")
    twin.wait({blocking: "running"})
    waiting = accounting_slurm.submit("sleep 1", *quick)
    twin.wait({waiting: "waiting"})

    def expected_run_s() -> float | None:
        told = twin.client.why(waiting)["expected"]
        if not told or not told["usual"] or not told["end"]["usual"]:
            return None
        begun, ended = (datetime.fromisoformat(each) for each in (told["usual"], told["end"]["usual"]))
        return (ended - begun).total_seconds()

    assert (eventually(expected_run_s, every_s=0.5) or 0.0) < 60.0  # of ten minutes that it may take

    twin.kill()
    twin.start()
    again = [job["id"] for job in twin.client.jobs(all=True)]
    assert len(again) == len({*again})
    assert {*past, failed, blocking} <= {*again}


@pytest.mark.long
def test_twin_reads_from_slurmrestd_what_the_commands_say(accounting_slurm: SlurmBed, launch: Launch) -> None:
    try:
        address = accounting_slurm.start_rest()
    except NoSlurm as error:
        pytest.skip(str(error))
    accounting_slurm.do("sacctmgr", "-i", "modify", "account", "vision", "set", "GrpTRES=gres/gpu=6")
    reserve = ("scontrol", "create", "reservation", "users=root", "starttime=now+5hours", "duration=30")
    accounting_slurm.do(*reserve, "ReservationName=whole", "nodes=n1")
    accounting_slurm.do(*reserve, "ReservationName=part", "partition=main", "nodecnt=1", "corecnt=4")
    running = accounting_slurm.submit("sleep 60", "--gres=gpu:4", "--account=vision")
    accounting_slurm.submit("true", "--array=0-2", "--hold")
    eventually(lambda: accounting_slurm.state(running) == "RUNNING")

    async def read(reader: SlurmReader) -> tuple[object, ...]:
        reservations = (await reader.reservations()).found
        found = (await reader.jobs()).found, (await reader.nodes()).found, reservations
        return *found, {*(await reader.associations()).found}

    by_rest = asyncio.run(read(SlurmRest(address)))
    assert by_rest == asyncio.run(read(SlurmCommands(accounting_slurm.folder / "slurm.conf")))
    twin = launch(accounting_slurm, "observe", "--rest", address)
    twin.wait({running: "running"})
    for name in ("whole", "part"):
        accounting_slurm.do("scontrol", "delete", f"ReservationName={name}")
    accounting_slurm.do("sacctmgr", "-i", "modify", "account", "vision", "set", "GrpTRES=gres/gpu=-1")
    accounting_slurm.kill("slurmrestd")
    eventually(lambda: "slurmrestd does not answer" in twin.log.read_text(), within_s=60)
    assert twin.states()[running] == "running"


def test_replay_of_the_accounting_starts_jobs_in_slurms_order(accounting_slurm: SlurmBed, tmp_path: Path) -> None:
    """`narrow` would fit beside `first`, but Slurm keeps its node for `wide`, and so does the replay."""
    names = ("first", "wide", "narrow", "second")
    work = {
        "first": ("sleep 8", "--gres=gpu:4", "--time=1"),
        "wide": ("sleep 2", "--gres=gpu:4", "-N2", "--time=1"),
        "narrow": ("sleep 2", "--gres=gpu:1", "--time=3"),
        "second": ("sleep 2", "--gres=gpu:4", "--time=1"),
    }
    before = accounting_slurm.do("date", "+%Y-%m-%dT%H:%M:%S")
    jobs = [accounting_slurm.submit(*work[name], f"--job-name={name}") for name in names]
    accounting_slurm.wait(jobs)
    ask = ("sacct", "-nPX", "-S", before, "--format=JobID,Start,State")
    eventually(lambda: accounting_slurm.do(*ask).count("COMPLETED") == len(jobs), every_s=0.5)
    lines = [line.split("|") for line in accounting_slurm.do(*ask).splitlines()]
    really = {name: start for name, start, _ in lines}

    def rota(*words: str) -> str:
        made = forked.run(words, env=accounting_slurm.env, cwd=tmp_path)
        assert made.returncode == 0, made.stderr
        return made.stdout

    said = rota("slurm", "accounting", "day.txt", "--since", before, "--scenario", "day.yaml")
    assert "easy:reserve=0,window_s=86400,resolution_s=60,interval_s=1,group_s=30,depth=500,limits=true" in said
    rota("sim", "--scenario", "day.yaml", "--out", "out")
    with (tmp_path / "out" / "jobs.csv").open() as file:
        replayed = {row["id"]: float(row["start_s"]) for row in csv.DictReader(file)}

    assert sorted(jobs, key=replayed.__getitem__) == sorted(jobs, key=really.__getitem__)
    assert replayed[jobs[2]] > replayed[jobs[1]]


@pytest.mark.long
def test_twin_shows_slurmrestd_a_token_that_is_renewed(launch: Launch, tmp_path: Path) -> None:
    """The first token ends after seconds; the twin goes on reading, as the file is renewed."""
    try:
        bed = SlurmBed(Shape(tokens=True), accounting=True).start()
    except NoSlurm as error:
        pytest.skip(str(error))
    token = tmp_path / "token"
    try:
        address = bed.start_rest()
        with pytest.raises(SlurmRefused, match="wants a valid token"):
            asyncio.run(SlurmRest(address).jobs())
        with pytest.raises(SlurmRefused, match="can't be read from"):
            asyncio.run(SlurmRest(address, token).jobs())
        token_file(token, bed.do("scontrol", "token", "lifespan=3600"))
        job = bed.submit("sleep 600", "--gres=gpu:4", "--account=vision")
        eventually(lambda: bed.state(job) == "RUNNING")
        assert [found.id for found in asyncio.run(SlurmRest(address, token).jobs()).found] == [job]
        assert {each.account for each in asyncio.run(SlurmRest(address, token).associations()).found} >= {"vision"}

        token_file(token, bed.do("scontrol", "token", "lifespan=20"))
        twin = launch(bed, "observe", "--rest", address, "--rest-token", str(token))
        twin.wait({job: "running"})
        eventually(lambda: "the token for slurmrestd has ended" in twin.log.read_text(), within_s=120)
        assert twin.states()[job] == "running"
        token_file(token, bed.do("scontrol", "token", "lifespan=3600"))
        bed.do("scancel", job)
        twin.wait({job: "cancelled"}, 60)
    finally:
        bed.stop()


def token_file(path: Path, content: str) -> Path:
    path.write_text(content + "\n")
    return path
