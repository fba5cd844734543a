"""Reservations on a real manager with emulated nodes: before, in and after their time, over a `kill -9`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from accounts.test_usage import client_of
from managers import Manager, eventually
from rota.sdk.client import Refused

pytestmark = pytest.mark.slow
Json = dict[str, Any]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path, "--emulate", "gpu=4/2").start()
    yield made
    made.clean_up()


def sleeper(manager: Manager, tenant: str = "vision", gpus: int = 1, **fields: Any) -> str:
    return manager.submit("sleep 600", tenant=tenant, resources={"gpus": gpus}, **fields)


def nodes_of(manager: Manager, job_id: str) -> list[str]:
    nodes: list[str] = manager.wait(job_id, "running")["nodes"]
    return nodes


def why(manager: Manager, job_id: str) -> str:
    return str((manager.client.job(job_id)["reason"] or {}).get("sentence", ""))


def in_s(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def test_before_in_and_after_the_time_of_a_reservation_and_over_a_kill(manager: Manager) -> None:
    client, both = manager.client, ["n1", "n2"]
    stays = sleeper(manager, gpus=2)  # it would lose its work, so that it is never stopped
    yields = sleeper(manager, preemptible=True)
    held_by_others, node = nodes_of(manager, stays), nodes_of(manager, yields)
    assert sorted(held_by_others + node) == both

    client.reserve("later", {"from": in_s(7200), "for_s": 60, "nodes": both, "tenant": "nlp"})
    unending = sleeper(manager)
    ends_before = sleeper(manager, time_limit="10m")
    assert nodes_of(manager, ends_before) == node
    assert manager.state(unending) == "waiting"
    assert "n1, n2 are reserved for nlp from " in why(manager, unending)
    client.act(ends_before, "cancel")
    manager.wait(ends_before, "cancelled")
    assert manager.state(unending) == "waiting"  # though a device is free again

    client.cancel_reservation("later")
    manager.wait(unending, "running")
    client.act(unending, "cancel")
    manager.wait(unending, "cancelled")
    client.reserve("course", {"from": in_s(3), "for_s": 3600, "nodes": both, "tenant": "nlp"})
    manager.wait(yields, "waiting", "preempted")
    eventually(lambda: "n1, n2 are reserved for nlp until " in why(manager, yields))
    other = sleeper(manager)
    manager.kill()
    manager.start()

    member = sleeper(manager, "nlp", gpus=2)
    assert nodes_of(manager, member) == node
    assert manager.state(stays) == "running"
    assert {manager.state(yields), manager.state(other)} <= {"waiting", "preempted"}
    assert [(each["name"], each["active"]) for each in manager.client.reservations()] == [("course", True)]
    manager.client.act(member, "cancel")
    manager.wait(member, "cancelled")
    manager.client.cancel_reservation("course")
    manager.wait(yields, "running")
    manager.wait(other, "running")
    for back in (0, 1):  # before and after the kill
        journal = manager.folder / f"journal-{back}.jsonl"
        journal.write_bytes(b"".join(manager.client.journal(back)))
        assert b"node-reserved" in journal.read_bytes()
        replayed = manager.rota("sim", "--replay", str(journal))
        assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    told = [(each["what"], each["thing"]) for each in manager.client.audit(50)]
    assert {("reserve", "course"), ("requeue", yields), ("cancel-reservation", "course")} <= set(told)


def test_a_reservation_ends_by_itself_also_while_the_manager_is_down(manager: Manager) -> None:
    manager.client.reserve("short", {"for_s": 4, "gpus": 4, "users": ["ada"]})
    waits = sleeper(manager)
    manager.wait(waits, "running")
    assert manager.client.reservations() == []
    manager.client.reserve("missed", {"for_s": 5, "gpus": 2, "users": ["ada", "ben"]})
    manager.kill()
    until = datetime.now(UTC) + timedelta(seconds=6)
    eventually(lambda: datetime.now(UTC) > until)

    manager.start()

    assert manager.client.reservations() == []
    assert nodes_of(manager, sleeper(manager, gpus=2))
    eventually(lambda: ("end-reservation", "missed") in {(e["what"], e["thing"]) for e in manager.client.audit(20)})


@pytest.mark.attack(
    "reserves the cluster for itself, or cancels the reservation of others", stopped_by="reservations take an admin"
)
def test_rights_refusals_and_the_command(tmp_path: Path) -> None:
    manager = Manager(tmp_path, "--emulate", "gpu=4/2", "--require-token").start_guarded()
    try:
        ada = client_of(manager, "ada", "maintainer", "nlp")
        hour: Json = {"for_s": 3600, "nodes": ["n1"], "tenant": "nlp"}
        for attempt in (
            lambda: ada.reserve("mine", hour),
            lambda: ada.cancel_reservation("mine"),
            ada.reservations,
        ):
            with pytest.raises(Refused, match="needs the role admin"):
                attempt()
        for change, message in (
            ({"nodes": ["n3"]}, "there is no node 'n3'; "),
            ({"nodes": []}, "give either nodes or gpus"),
            ({"gpus": 2}, "give either nodes or gpus"),
            ({"type": "gpu"}, "type: it belongs to gpus"),
            ({"nodes": ["n1\x1b[2J"]}, "not a name"),
            ({"users": ["ada"]}, "give either tenant or users"),
            ({"tenant": "nobody"}, "no tenant 'nobody'"),
            ({"for_s": 0}, "for_s"),
            ({"from": "tomorrow"}, "from: 'tomorrow' is not a date"),
            ({"from": "2020-01-01"}, "this time is over"),
            ({"nodes": [], "gpus": 3}, "ask for 2 GPUs or 4 GPUs, or name nodes"),
            ({"nodes": [], "gpus": 2, "type": "H100"}, "no node has devices of type 'H100'"),
        ):
            with pytest.raises(Refused, match=message):
                manager.client.reserve("wrong", {**hour, **change})
        with pytest.raises(Refused, match="there is no reservation 'none'"):
            manager.client.cancel_reservation("none")
        manager.env["ROTA_TOKEN"] = manager.token
        words = ["--for", "1h", "--nodes", "n1", "--tenant", "nlp"]
        made = manager.rota("reservations", "add", "mine", *words)
        assert made.stdout.startswith("n1 reserved for nlp from "), made.stderr
        with pytest.raises(Refused, match=r"n1 is reserved for nlp until .* \(mine\); name other nodes"):
            manager.client.reserve("again", hour)
        with pytest.raises(Refused, match="there is a reservation 'mine' already"):
            manager.client.reserve("mine", hour)
        assert "mine" in manager.rota("reservations").stdout
        theirs = client_of(manager, "ben", "member", "vision")
        waits = theirs.submit({"run": "sleep 600", "tenant": "vision", "resources": {"gpus": 4}})[0]
        assert "n1 is reserved for nlp until" in theirs.why(waits)["reason"]["sentence"]
        assert manager.rota("reservations", "cancel", "mine").returncode == 0
        assert manager.client.reservations() == []
    finally:
        manager.clean_up()
