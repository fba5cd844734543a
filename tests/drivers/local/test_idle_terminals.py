"""When terminals count as idle: what is due at which moment, by the times of what happened in them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rota.drivers.local.interactive.idle_limit import IdleSessionLimit
from rota.drivers.local.task_runner.files import write
from rota.drivers.local.task_runner.interactive.idle import IdleTerminals
from rota.drivers.local.task_runner.interactive.session import HostSession
from rota.drivers.local.task_runner.interactive.stdio import Stdio
from rota.drivers.local.task_runner.processes import started

AFTER_S, WARN_S = 100.0, 10.0


def session(name: str, at_s: float, *, tty: bool = True) -> HostSession:
    stdio = Stdio(tty=tty)
    stdio.close_its()
    made = HostSession(name, stdio, os.getpid(), started(os.getpid()), is_main=name == "main")
    made.active_s = at_s
    return made


@pytest.fixture
def main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostSession]:
    monkeypatch.chdir(tmp_path)
    with closing(session("main", 1000.0)) as made:
        yield made


def terminals(asked_s: float | None = None, after_s: float | None = AFTER_S) -> IdleTerminals:
    return IdleTerminals(IdleSessionLimit(after_s=after_s, warn_s=WARN_S).order(asked_s))


def due(idle: IdleTerminals, now: float, *sessions: HostSession) -> list[tuple[str, bool]]:
    return [(each.name, ends) for each, _, ends in idle.look(sessions, now)]


def test_idle_terminal_is_warned_once_then_ended_once(main: HostSession) -> None:
    idle = terminals()

    assert idle.next_s([main]) == 1090.0
    assert due(idle, 1089.9, main) == []
    assert due(idle, 1090.0, main) == [("main", False)]
    assert idle.next_s([main]) == 1100.0
    assert due(idle, 1099.9, main) == []
    assert due(idle, 1100.0, main) == [("main", True)]
    assert due(idle, 2000.0, main) == []
    assert idle.next_s([main]) == float("inf")


def test_what_happens_after_the_warning_forgives(main: HostSession) -> None:
    idle = terminals()
    assert due(idle, 1095.0, main) == [("main", False)]
    main.active_s = 1096.0

    assert due(idle, 1150.0, main) == []
    assert due(idle, 1186.0, main) == [("main", False)]


def test_late_look_warns_before_it_ends(main: HostSession) -> None:
    idle = terminals()

    assert due(idle, 5000.0, main) == [("main", False)]
    assert due(idle, 5009.9, main) == []
    assert due(idle, 5010.0, main) == [("main", True)]


def test_job_is_not_idle_while_something_happens_beside_it(main: HostSession) -> None:
    idle = terminals()
    with closing(session("1", 1050.0, tty=False)) as beside:
        assert due(idle, 1100.0, main, beside) == []
    assert due(idle, 1139.9, main) == []  # what happened in it counts when it has ended
    assert due(idle, 1140.0, main) == [("main", False)]


def test_terminals_beside_follow_the_manager_and_the_task_the_shorter_time(main: HostSession) -> None:
    with closing(session("1", 1000.0)) as beside:
        assert due(terminals(asked_s=20.0), 1011.0, main, beside) == [("main", False)]
        assert due(terminals(asked_s=500.0), 1091.0, main, beside) == [("main", False), ("1", False)]
        assert due(terminals(asked_s=20.0, after_s=None), 9999.0, main, beside) == [("main", False)]
    assert IdleSessionLimit().order(None) is None
    assert not IdleTerminals(None).is_on


def test_suspended_time_does_not_count(main: HostSession) -> None:
    idle = terminals()
    write("state.json", {"phase": "running", "rests_since_s": 5.0})

    assert due(idle, 1095.0, main) == []
    write("state.json", {"phase": "running", "rests_since_s": None})
    assert due(idle, 1184.0, main) == []
    assert due(idle, 1185.0, main) == [("main", False)]
