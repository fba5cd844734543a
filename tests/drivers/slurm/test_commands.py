"""What is asked of Slurm's commands, and in which order orders are given: programs of these names print or fail."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forked
from drivers.slurm.slurm_values import job_value, node_value
from rota.core.model.job import JobId
from rota.core.state.job_record import LiveJob
from rota.drivers.slurm import marks
from rota.drivers.slurm.commands import SlurmAway, SlurmCommands, SlurmRefused
from rota.drivers.slurm.driver import SlurmDriver
from rota.drivers.slurm.printed.accounts import read_associations
from rota.drivers.slurm.printed.records import SlurmReading, SlurmUnreadable, read_jobs
from rota.drivers.slurm.printed.reservations import read_reservations, read_rest_reservations
from rota.drivers.slurm.rest import read_rest_associations
from rota.drivers.slurm.scheduler_config import read_config
from rota.drivers.slurm.slurm_settings import SlurmSettings, settings_of
from rota.drivers.slurm.translate import job_of
from rota.drivers.slurm.view import SlurmView
from rota.drivers.slurm.watchdog import release_all

Json = dict[str, Any]
Write = Callable[[str, str], None]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a shell program; each call of it is a line of the file `calls`."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def write(name: str, body: str) -> None:
        path = tmp_path / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/calls\n{body}\n')
        path.chmod(0o755)

    return write


def calls(folder: Path) -> list[str]:
    """What was called since the last question."""
    path = folder / "calls"
    found = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return found


def test_nodes_of_releases_whose_sinfo_sums_them_up(program: Write, tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text(json.dumps({"nodes": [node_value(state=["IDLE", "PLANNED"])], "errors": []}))
    program("sinfo", 'echo \'{"sinfo": [{"nodes": {"nodes": ["n1"]}}], "errors": []}\'')
    program("scontrol", f"cat {tmp_path}/nodes")
    commands = SlurmCommands()

    for _ in range(2):
        assert [node.name for node in asyncio.run(commands.nodes()).found] == ["n1"]
    assert calls(tmp_path) == ["sinfo --json --all", *["scontrol --json --all show nodes"] * 2]


def test_long_arrays_are_asked_for_whole(program: Write) -> None:
    program("squeue", '[ "$SLURM_BITSTR_LEN" = 0 ] && echo \'{"jobs": []}\'')

    assert asyncio.run(SlurmCommands().jobs()).found == []


def test_accounting_has_a_cell_for_each_column_whatever_jobs_are_called(program: Write) -> None:
    program("sacct", r"printf 'JobID\037JobName\n7\037a|b\n'")

    assert asyncio.run(SlurmCommands().accounting("now-1days", ("JobID", "JobName"))) == b"JobID|JobName\n7|a_b\n"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("sleep 60", SlurmAway),
        ("exit 1", SlurmRefused),
        ("echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1", SlurmAway),
        ("echo '{\"jobs\": ['", SlurmUnreadable),
        ("head -c 5000 /dev/urandom", SlurmUnreadable),
        ("true", SlurmUnreadable),
    ],
)
def test_command_that_hangs_fails_or_prints_nonsense_is_one_clear_error(
    program: Write, body: str, error: type[Exception]
) -> None:
    program("squeue", body)

    with pytest.raises(error):
        asyncio.run(SlurmCommands(within_s=1.0).jobs())


def test_accounts_of_other_clusters_are_others() -> None:
    lines = "bed|vision||root|3|gres/gpu=6||\nother|vision||root|9|gres/gpu=1||\n"
    values = [
        {"cluster": name, "account": "vision", "shares_raw": shares} for name, shares in (("bed", 3), ("other", 9))
    ]

    by_command = read_associations(lines, "bed").found
    by_rest = read_rest_associations(json.dumps({"associations": values}).encode(), "bed").found
    assert [each.shares for each in by_command] == [each.shares for each in by_rest] == [3.0]


@pytest.mark.parametrize(
    "details", [{"core_specializations": [{"node": "n1", "core": "0-3"}]}, {"core_spec_cnt": 1}], ids=["new", "22.05"]
)
def test_reservations_by_command_and_by_rest(details: Json) -> None:
    whole = (
        "ReservationName=later StartTime=100 EndTime=200 Duration=00:01:40 Nodes=n[1-2] NodeCnt=2 CoreCnt=32 "
        "Features=(null) PartitionName=(null) Flags=SPEC_NODES TRES=cpu=32 Users=(null) Accounts=nlp,vision"
    )
    part = (
        "ReservationName=part StartTime=100 EndTime=200 Duration=00:01:40 Nodes=n1 NodeCnt=1 CoreCnt=4 "
        "Features=(null) PartitionName=main Flags=   NodeName=n1 CoreIDs=0-3 TRES=cpu=4 Users=ann,-bob Groups=(null)"
    )
    values = [
        {"name": "later", "start_time": {"set": True, "infinite": False, "number": 100}, "end_time": 200}
        | {"node_list": "n[1-2]", "users": "", "accounts": "nlp,vision", "core_specializations": []},
        {"name": "part", "start_time": 100, "end_time": 200, "node_list": "n1", "users": "ann,-bob", "accounts": ""}
        | details,
    ]

    by_command = read_reservations(f"{whole}\n{part}\nReservationName=bad StartTime=x EndTime=1 Nodes=n1\n")
    by_rest = read_rest_reservations(json.dumps({"reservations": [*values, {"name": "bad"}, 5]}).encode())
    assert by_command.found == by_rest.found
    assert [(each.nodes, each.is_partial, each.users) for each in by_command.found] == [
        (("n1", "n2"), False, ()),
        (("n1",), True, ("ann",)),
    ]
    assert (len(by_command.faults), len(by_rest.faults)) == (1, 2)
    assert read_reservations("No reservations in the system\n").found == []


@pytest.mark.parametrize(
    ("select", "parameters", "wanted"),
    [
        ("select/cons_tres", "CR_CPU_MEMORY", SlurmSettings(name="bed")),
        ("select/cons_tres", "CR_CORE,CR_LLN", SlurmSettings(name="bed", counts_memory=False)),
        ("select/cons_res", "CR_MEMORY", SlurmSettings(name="bed", counts_cpus=False)),
        ("select/linear", "NONE", SlurmSettings(name="bed", counts_memory=False, gives_whole_nodes=True)),
    ],
)
def test_what_a_cluster_counts(select: str, parameters: str, wanted: SlurmSettings) -> None:
    config = f"ClusterName = bed\nSelectType = {select}\nSelectTypeParameters = {parameters}\n"

    assert settings_of(read_config(config, "test"), "PartitionName=a OverSubscribe=NO State=UP\n") == wanted


def test_job_has_what_its_cluster_counts_and_no_more() -> None:
    (job,) = read_jobs(json.dumps({"jobs": [job_value(partition="gpu")], "errors": []})).found
    partitions = "PartitionName=gpu OverSubscribe=EXCLUSIVE State=UP\nPartitionName=cpu OverSubscribe=NO State=UP\n"
    settings = settings_of({"selecttypeparameters": "CR_CORE"}, partitions)

    assert (settings.adjust(job).memory_bytes, settings.adjust(job).cpus) == (0, 2)
    assert settings.adjust(job).exclusive
    assert SlurmSettings().adjust(job) is job


FAILS_AT = """
n=$(grep -c . {calls})
[ "$n" -ge {at} ] || exit 0
echo 'slurm_update error: Unable to contact slurm controller (connect failure)' >&2
exit 1
"""


@pytest.mark.parametrize("at", range(2, 5))
def test_watchdog_takes_its_mark_off_last(program: Write, tmp_path: Path, at: int) -> None:
    """Whatever fails on the way, the job is held with Rota's mark, and the next attempt releases it; or it is free."""
    held = job_value(5, priority=0, admin_comment=marks.PLACED, state_reason="JobHeldAdmin")
    (tmp_path / "queue").write_text(json.dumps({"jobs": [held], "errors": []}))
    program("squeue", f"cat {tmp_path}/queue")
    program("scontrol", FAILS_AT.format(calls=tmp_path / "calls", at=at))

    asyncio.run(release_all(SlurmCommands()))
    done = calls(tmp_path)[1:]
    assert [call.split()[1] for call in done] == ["update", "release", "update"][: at - 1]
    assert not any("AdminComment" in call for call in done[:2])


@pytest.mark.parametrize("mark", [marks.LEFT, marks.HELD])
def test_job_that_is_held_again_has_rotas_mark_first(program: Write, tmp_path: Path, mark: str) -> None:
    """The watchdog released it while Rota hung; if Rota ends after holding it again, the watchdog has to find it."""
    program("scontrol", "true")
    (job,) = read_jobs(json.dumps({"jobs": [job_value(5, admin_comment=mark)], "errors": []})).found
    driver = SlurmDriver(SlurmCommands(), SlurmView(), {})
    asyncio.run(driver._hold(job))

    marking = [] if mark == marks.HELD else [f"scontrol update JobId=5 AdminComment={marks.HELD}"]
    assert calls(tmp_path) == [*marking, "scontrol hold 5"]


def test_job_that_could_not_be_left_to_slurm_is_left_at_the_next_look(program: Write, tmp_path: Path) -> None:
    (job,) = read_jobs(json.dumps({"jobs": [job_value(5, admin_comment=marks.HELD, priority=0)]})).found
    driver = SlurmDriver(SlurmCommands(), SlurmView(), {})
    live = LiveJob(job_of(job), 1, 0.0, 1.0)

    async def leave() -> list[str]:
        driver._leave_known(job, live, "test")
        driver.cancel(str(JobId("5")))  # its end here is none there
        await driver.close()
        return calls(tmp_path)

    program("scontrol", "echo 'Unable to contact slurm controller' >&2; exit 1")
    assert asyncio.run(leave()) == ["scontrol release 5"]
    assert not driver._left
    program("scontrol", "true")
    assert asyncio.run(leave()) == ["scontrol release 5", f"scontrol update JobId=5 AdminComment={marks.LEFT}"]


def test_view_keeps_what_could_not_be_read() -> None:
    view = SlurmView()
    view.take(read_jobs(json.dumps({"jobs": [job_value(1), job_value(2)]})), 0.0)
    view.take(read_jobs(json.dumps({"jobs": [job_value(1, job_state="?"), job_value(3)]})), 1.0)

    assert sorted(view.jobs) == ["1", "3"]
    view.take(SlurmReading([], [], {""}), 2.0)
    assert sorted(view.jobs) == ["1", "3"]
    view.take(SlurmReading(), 3.0)
    assert not view.jobs


def test_watchdog_of_a_folder_that_no_rota_uses_says_so(tmp_path: Path) -> None:
    """It would release the jobs of a Rota that is well and has another folder."""
    made = forked.run(("slurm", "watchdog", "--data", str(tmp_path / "other")))

    assert made.returncode == 2
    assert "name the folder of the one to watch with --data" in made.stderr
