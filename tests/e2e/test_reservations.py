"""Reservations on a real manager with emulated nodes: a window that begins and ends, over a `kill -9`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from managers import Manager, eventually
from rota.sdk.client import Refused

pytestmark = pytest.mark.slow
Json = dict[str, Any]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path, "--emulate", "gpu=4/2").start()
    yield made
    made.clean_up()


def sleeper(manager: Manager, tenant: str = "vision", gpus: int = 2, **fields: Any) -> str:
    return manager.submit("sleep 600", tenant=tenant, resources={"gpus": gpus}, **fields)


def nodes_of(manager: Manager, job_id: str) -> list[str]:
    return manager.wait(job_id, "running")["nodes"]


def why(manager: Manager, job_id: str) -> str:
    return str((manager.client.job(job_id)["reason"] or {}).get("sentence", ""))


def test_a_window_clears_its_node_keeps_others_off_over_a_kill_and_ends(manager: Manager) -> None:
    begins = datetime.now(UTC) + timedelta(seconds=30)
    stays = sleeper(manager)  # can't be stopped, and was there before
    n1 = nodes_of(manager, stays)[0]
    n2 = "n2" if n1 == "n1" else "n1"
    manager.client.reserve(
        "course", {"from": begins.isoformat(), "for_s": 3600, "nodes": ["n1", "n2"], "tenant": "nlp"}
    )
    unending, yields = sleeper(manager), sleeper(manager, preemptible=True)

    assert nodes_of(manager, yields) == [n2]
    assert manager.state(unending) == "waiting"
    assert f"n1, n2 are reserved for nlp from {begins:%H:%M}" in why(manager, unending)

    manager.wait(yields, "waiting", "preempted")
    assert datetime.now(UTC) >= begins - timedelta(seconds=1)
    assert manager.state(stays) == "running"
    assert "n1, n2 are reserved for nlp until" in why(manager, yields)
    manager.kill()
    manager.start()
    member = sleeper(manager, "nlp")
    assert nodes_of(manager, member) == [n2]
    assert manager.state(stays) == "running"
    assert {manager.state(each) for each in (unending, yields)} <= {"waiting", "preempted"}
    assert [(each["name"], each["active"]) for each in manager.client.reservations()] == [("course", True)]

    manager.client.act(member, "cancel")
    manager.wait(member, "cancelled")
    manager.client.cancel_reservation("course")
    eventually(lambda: "running" in (manager.state(unending), manager.state(yields)))
    assert manager.client.reservations() == []
    told = [(each["what"], each["thing"]) for each in manager.client.audit(50)]
    assert {("reserve", "course"), ("requeue", yields), ("cancel-reservation", "course")} <= set(told)
