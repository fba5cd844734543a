"""The local driver with real supervisors and tasks; what must not matter is made to happen at the worst moment."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from local_drivers import Bench, until, with_driver
from rota.core.messages.decisions import Cause
from rota.core.messages.events import End, Interrupted, JobEnded, Started, StartFailed
from rota.core.model.job import Elastic
from rota.drivers.local.attempt_controller import AttemptController
from rota.drivers.local.confinement.accounts import AccountMap
from rota.drivers.local.task import TaskHandle
from rota.drivers.local.task_runner.processes import start_time

pytestmark = pytest.mark.slow


def test_end_of_a_task_spares_the_task_of_the_same_number_of_another_manager(tmp_path: Path) -> None:
    async def course(bench: Bench) -> None:
        other = Bench(tmp_path / "other")
        bench.driver.start(bench.order("sleep 600"))
        await until(lambda: bench.events(Started))
        other.driver.start(other.order("true"))
        await until(lambda: other.events(JobEnded))
        other.close()
        assert Path(f"/proc/{bench.state()['pid']}").exists()
        bench.driver.stop(bench.order("").job.id, Cause.CANCELLED)
        await until(lambda: bench.state().get("phase") == "ended")
        assert bench.state()["stopped"]

    with_driver(tmp_path, course)


def test_task_that_ends_while_it_is_being_found_again_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def course(bench: Bench) -> None:
        order = bench.order(f"while [ ! -e {tmp_path}/end ]; do sleep 0.01; done; exit 9")
        bench.driver.start(order)
        await until(lambda: bench.events(Started))
        bench.close()
        find = TaskHandle.find

        def ends_first(task: TaskHandle) -> None:
            supervisor = bench.state()["supervisor"]
            (tmp_path / "end").touch()
            os.waitpid(supervisor, 0)
            find(task)

        monkeypatch.setattr(TaskHandle, "find", ends_first)
        again = Bench(bench.home)
        again.driver.find(order)
        await until(lambda: again.answers)
        again.close()
        ((event, word),) = again.answers
        assert (event, word.exit_code) == (JobEnded(order.job.id, End.FAILED, event.work), 9)  # type: ignore[union-attr]

    with_driver(tmp_path, course)


def test_job_that_is_resized_when_it_has_just_ended_ends_once(tmp_path: Path) -> None:
    async def course(bench: Bench) -> None:
        bench.driver.settle()
        order = bench.order("true")
        order = replace(order, job=replace(order.job, elastic=Elastic(min_tasks=1, max_tasks=2)))
        bench.driver.start(order)
        await until(lambda: bench.events(JobEnded))
        bench.driver.resize(replace(order, attempt=2, resizes=True), order.placement)
        bench.driver.start(bench.order("true", name="2"))
        await until(lambda: len(bench.events(JobEnded)) > 1)
        assert [event.job_id for event in bench.events(JobEnded)] == ["1", "2"]  # type: ignore[union-attr]

    with_driver(tmp_path, course)


def test_barrier_stays_shut_when_a_task_was_called_off_before(tmp_path: Path) -> None:
    """A server gave the gang up and died when it had told one task of two."""

    async def course(bench: Bench) -> None:
        order = bench.order("echo ran", workers=2)
        bench.driver.start(order)
        await until(lambda: (bench.folder(1) / "task.json").exists())
        bench.close()
        (bench.folder(0) / "stop.json").write_text('{"signal": "SIGTERM", "grace_s": 1.0}')
        await until(lambda: bench.state(0).get("phase") == "ended")
        await until(lambda: bench.state(1).get("phase") == "ready")
        again = Bench(bench.home)
        again.driver.start(order)
        await until(lambda: again.answers)
        again.close()
        assert [type(event) for event, _ in again.answers] == [StartFailed]
        assert not (bench.folder().parent / "go").exists()

    with_driver(tmp_path, course)


def test_job_that_an_earlier_manager_gave_up_is_interrupted_and_has_not_failed(tmp_path: Path) -> None:
    """A server counted a task as lost, stopped the other one and died; the lost one had ended well all the same."""

    async def course(bench: Bench) -> None:
        order = bench.order("test $ROTA_RANK = 1 || sleep 600", workers=2)
        bench.driver.start(order)
        await until(lambda: bench.events(Started))
        await until(lambda: bench.state(1).get("phase") == "ended")
        bench.close()
        (bench.folder(0) / "stop.json").write_text('{"signal": "SIGTERM", "grace_s": 1.0}')
        os.kill(int(bench.state(0)["supervisor"]), signal.SIGUSR1)
        await until(lambda: bench.state(0).get("phase") == "ended")
        again = Bench(bench.home)
        again.driver.find(order)
        await until(lambda: again.answers)
        again.close()
        assert [type(event) for event, _ in again.answers] == [Interrupted]

    with_driver(tmp_path, course)


def test_stop_reaches_the_supervisor_that_has_the_claim(tmp_path: Path) -> None:
    """A new server starts a second supervisor beside one that was slow to claim; the order must find the first."""

    async def course(bench: Bench) -> None:
        order = bench.order("sleep 600")
        bench.driver.start(order)
        first = _pid_of(bench.driver, 0)
        os.kill(first, signal.SIGSTOP)
        bench.close()
        assert not (bench.folder() / "claim").exists()
        again = Bench(bench.home)
        again.driver.start(order)
        second = _pid_of(again.driver, 0)
        os.kill(second, signal.SIGSTOP)
        os.kill(first, signal.SIGCONT)
        await until(lambda: bench.state().get("phase") == "running")
        again.driver.stop(order.job.id, Cause.CANCELLED)
        os.kill(second, signal.SIGCONT)
        await until(lambda: again.answers and bench.state()["phase"] == "ended", within_s=60)
        again.close()

    with_driver(tmp_path, course)


def test_supervisor_that_died_on_a_full_disk_is_given_up_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid, tries = TaskHandle.forbid, []

    def no_room_at_first(task: TaskHandle) -> bool:
        tries.append(task)
        if len(tries) < 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return forbid(task)

    async def course(bench: Bench) -> None:
        monkeypatch.setattr("rota.drivers.local.attempt_controller.FULL_S", 0.01)
        monkeypatch.setattr(TaskHandle, "forbid", no_room_at_first)
        bench.driver.start(bench.order("true"))
        os.kill(_pid_of(bench.driver, 0), signal.SIGKILL)
        await until(lambda: bench.answers)
        assert [type(event) for event, _ in bench.answers] == [StartFailed]
        assert len(tries) == 3

    with_driver(tmp_path, course)


def test_keeper_whose_folder_was_removed_ends_with_its_task(tmp_path: Path) -> None:
    async def course(bench: Bench) -> None:
        bench.driver.start(bench.order(f"while [ ! -e {tmp_path}/end ]; do sleep 0.01; done"))
        await until(lambda: bench.events(Started))
        state = bench.state()
        (bench.home / "runs").rename(tmp_path / "removed")
        shutil.rmtree(tmp_path / "removed", ignore_errors=True)  # the keeper may write there meanwhile
        (tmp_path / "end").touch()
        await until(lambda: not start_time(state["supervisor"]) and not start_time(state["recorder"]))

    with_driver(tmp_path, course)


def _pid_of(driver: AttemptController, rank: int) -> int:
    (found,) = [task for attempt, task in driver._by_token.values() if task.slot.rank == rank]
    return found._child


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run tasks as another user")
def test_task_runs_as_another_user_who_may_not_read_what_is_ours(tmp_path: Path) -> None:
    async def course(bench: Bench) -> None:
        order = bench.order("")
        roles = (replace(order.launch.roles[0], argv=("id", "-u")),)
        bench.driver.start(replace(order, launch=replace(order.launch, workdir="/", roles=roles)))
        await until(lambda: bench.events(JobEnded))
        assert next(bench.folder().glob("output-*")).read_text() == "65534\n"

    with_driver(tmp_path, course, accounts=AccountMap(run_as={"*": "nobody"}))
