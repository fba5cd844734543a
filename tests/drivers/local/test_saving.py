"""A task that says that it only saves: its devices can be given away, whoever hears of it and when."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from local_drivers import Bench, until, with_driver
from rota.core.messages.events import JobEnded, Started, WorkDone
from rota.sdk import saving

pytestmark = pytest.mark.slow
SAYS = (
    'until [ -e {0}/say ]; do sleep 0.01; done; echo saving > "$ROTA_TELL"; until [ -e {0}/end ]; do sleep 0.01; done'
)


def test_a_task_that_saves_is_told_of_once_and_before_its_end(tmp_path: Path) -> None:
    async def course(bench: Bench) -> None:
        bench.driver.start(bench.order(SAYS.format(tmp_path)))
        await until(lambda: bench.events(Started))
        assert not bench.events(WorkDone)
        (tmp_path / "say").touch()
        await until(lambda: bench.events(WorkDone))
        assert not bench.events(JobEnded)
        (tmp_path / "end").touch()
        await until(lambda: bench.events(JobEnded))
        assert len(bench.events(WorkDone)) == 1

    with_driver(tmp_path, course, overlaps=True)


def test_a_gang_saves_when_all_its_tasks_do(tmp_path: Path) -> None:
    async def course(bench: Bench) -> None:
        (tmp_path / "say").touch()
        waits = f'[ "$ROTA_RANK" = 0 ] || until [ -e {tmp_path}/both ]; do sleep 0.01; done; '
        bench.driver.start(bench.order(waits + SAYS.format(tmp_path), workers=2))
        await until(lambda: bench.state().get("saves_since_s"))
        assert not bench.events(WorkDone)
        (tmp_path / "both").touch()
        await until(lambda: bench.events(WorkDone))
        (tmp_path / "end").touch()
        await until(lambda: bench.events(JobEnded))

    with_driver(tmp_path, course, overlaps=True)


def test_a_new_server_hears_of_one_that_saved_before(tmp_path: Path) -> None:
    async def course(bench: Bench) -> None:
        order = bench.order(SAYS.format(tmp_path))
        bench.driver.start(order)
        await until(lambda: bench.events(Started))
        bench.close()
        (tmp_path / "say").touch()
        await until(lambda: bench.state().get("saves_since_s"))
        again = Bench(bench.home, overlaps=True)
        again.driver.find(order)
        await until(lambda: again.events(WorkDone))
        (tmp_path / "end").touch()
        await until(lambda: again.events(JobEnded))
        again.close()

    with_driver(tmp_path, course, overlaps=True)


def test_under_other_policies_nobody_is_told_and_nonsense_is_no_word(tmp_path: Path) -> None:
    async def course(bench: Bench) -> None:
        bench.driver.start(bench.order('echo nonsense > "$ROTA_TELL"; echo saving > "$ROTA_TELL"; sleep 0.2'))
        await until(lambda: bench.events(JobEnded))
        assert bench.state()["saves_since_s"] > 0
        assert not bench.events(WorkDone)

    with_driver(tmp_path, course)


def test_the_sdk_says_it_and_does_nothing_outside_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROTA_TELL", raising=False)
    saving()
    monkeypatch.setenv("ROTA_TELL", str(tmp_path / "gone"))
    saving()
    os.mkfifo(tmp_path / "tell")
    end = os.open(tmp_path / "tell", os.O_RDWR | os.O_NONBLOCK)
    monkeypatch.setenv("ROTA_TELL", str(tmp_path / "tell"))
    saving()

    assert os.read(end, 100) == b"saving\n"
    os.close(end)
