"""A real manager whose tenants, cells and nodes change while its jobs run: nothing is stopped, nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from managers import Manager, eventually
from rota.sdk.client import Client, Refused

pytestmark = pytest.mark.slow

HALL = Path(__file__).parents[1] / "conformance" / "own" / "config" / "hall.yaml"
SLEEP = "sleep 300"


@pytest.fixture
def hall(tmp_path: Path) -> Iterator[Manager]:
    """A manager of the hall's cells: `green` owns a rack of two nodes, `blue` a node and a pinned one."""
    (tmp_path / "hall.yaml").write_text(HALL.read_text())
    made = Manager(tmp_path, "--emulate", str(tmp_path / "hall.yaml"), "--tenancy", "cells").start()
    yield made
    made.clean_up()


def written(manager: Manager, name: str, **tenants: int) -> Path:
    """The hall with other promises: so many nodes of racks for each tenant."""
    document = yaml.safe_load(HALL.read_text())
    document["virtualClusters"] = {
        tenant: {"virtualCells": [{"cellType": "RACK.BOX", "cellNumber": boxes}]} for tenant, boxes in tenants.items()
    }
    path = manager.folder / name
    path.write_text(yaml.safe_dump(document))
    return path


def box(manager: Manager, tenant: str, **fields: object) -> str:
    return manager.submit(SLEEP, tenant=tenant, resources={"gpus": 4}, **fields)


def test_tenants_change_while_jobs_run(hall: Manager) -> None:
    first, second = box(hall, "green", priority=5), box(hall, "green")
    for job_id in (first, second):
        hall.wait(job_id, "running")
    path = written(hall, "after.yaml", green=1, red=3)

    dry = hall.rota("tenants", "apply", str(path), "--dry-run")
    assert (dry.returncode, "nothing was" in dry.stderr) == (0, True), dry.stderr
    with pytest.raises(Refused, match="there is no tenant 'red'"):
        box(hall, "red")
    told = hall.rota("tenants", "apply", str(path), "-o", "json")

    assert told.returncode == 0, told.stderr
    rows = {row["change"]: row["names"] for row in json.loads(told.stdout)}
    assert rows == {"promises to tenants": ["green", "blue", "red"], "jobs without a guarantee now": [second]}
    assert [hall.state(job_id) for job_id in (first, second)] == ["running", "running"]
    by_name = {each["tenant"]: each for each in json.loads(hall.rota("tenants", "-o", "json").stdout)}
    green, red = by_name["green"], by_name["red"]
    assert (green["held"], green["guaranteed"], green["borrowed"]) == (8.0, 4, 4.0)
    assert (red["held"], red["guaranteed"], red["lent"]) == (0.0, 12, 0.0), "there is enough that nobody is promised"
    assert ["green", "2", "0", "8", "4", "4", "0"] in [line.split() for line in hall.rota("top").stdout.splitlines()]
    reds = [box(hall, "red") for _ in range(3)]
    for job_id in reds:
        hall.wait(job_id, "running")
    assert hall.state(first) == "running", "it has its guarantee"
    eventually(lambda: hall.state(second) in ("preempted", "waiting"))
    assert "tenant green may use 4 devices" in hall.client.why(second)["reason"]["sentence"]


def test_a_change_outlives_the_manager_and_replays(hall: Manager) -> None:
    path = written(hall, "after.yaml", green=1, red=3)
    assert hall.rota("tenants", "apply", str(path)).returncode == 0
    red = box(hall, "red")
    hall.wait(red, "running")

    journal = hall.folder / "journal.jsonl"
    journal.write_bytes(b"".join(hall.client.journal()))
    hall.kill()
    hall.start()

    assert hall.wait(red, "running")["attempt"] == 1
    again = hall.rota("tenants", "apply", str(path))
    assert "nothing changes" in again.stderr
    more = json.loads(
        hall.rota("tenants", "apply", str(written(hall, "more.yaml", green=1, red=2)), "--dry-run", "-o", "json").stdout
    )
    assert [row["names"] for row in more] == [["red"]], "green's promise stays"
    replayed = hall.rota("sim", "--replay", str(journal))
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr


def test_a_manager_given_another_file_changes_over_to_it(hall: Manager) -> None:
    green = box(hall, "green")
    hall.wait(green, "running")
    hall.kill()
    path = written(hall, "after.yaml", red=4)
    hall.options = ("--emulate", str(path), "--tenancy", "cells")

    hall.start()

    assert hall.state(green) == "running"
    reds = [box(hall, "red") for _ in range(4)]
    for job_id in reds:
        hall.wait(job_id, "running")
    eventually(lambda: hall.client.job(green)["nodes"] == ["lone"])
    hall.wait(green, "running")


def test_shares_beyond_what_there_is_change_nothing(tmp_path: Path) -> None:
    manager = Manager(tmp_path, "--emulate", str(HALL), "--tenancy", "quota").start()
    try:
        before = manager.client.get("/cluster")
        rows = json.loads(manager.rota("tenants", "-o", "json").stdout)
        owned = {row["tenant"]: row["guaranteed"] for row in rows if row["guaranteed"]}
        assert owned == {"green": 8, "blue": 8}, "cells count by devices"
        nodes = [{"name": "n1", "type": "T4", "gpus": 4}]
        with pytest.raises(Refused, match="the shares of green, red add up to 5 of 'T4'; the cluster has 4"):
            manager.client.change_cluster(
                {"nodes": nodes, "tenants": {"green": {"gpus": {"T4": 4}}, "red": {"gpus": {"T4": 1}}}}
            )

        assert manager.client.get("/cluster") == before
    finally:
        manager.clean_up()


def test_nodes_come_and_go(manager: Manager) -> None:
    jobs = [manager.submit(SLEEP, resources={"gpus": 4}) for _ in range(3)]
    for job_id in jobs[:2]:
        manager.wait(job_id, "running")
    three = {"nodes": [{"name": f"n{number}", "type": "gpu", "gpus": 4} for number in (1, 2, 3)]}

    changed = manager.client.change_cluster(three)["changed"]

    assert changed == {"nodes added": ["n3"]}
    manager.wait(jobs[2], "running")
    without_n3 = {"nodes": three["nodes"][:2]}
    assert manager.client.change_cluster(without_n3)["changed"] == {"nodes removed": ["n3"]}
    assert {node["id"]: node["state"] for node in manager.client.nodes()}["n3"] == "leaving"
    with pytest.raises(Refused, match="becomes another machine while jobs run there"):
        manager.client.change_cluster({"nodes": [*without_n3["nodes"], {"name": "n3", "type": "gpu", "gpus": 8}]})
    manager.kill()
    manager.start()
    assert manager.state(jobs[2]) == "running"
    manager.client.act(jobs[2], "cancel")
    manager.wait(jobs[2], "cancelled")
    assert "n3" not in {node["id"] for node in manager.client.nodes()}


def test_only_an_admin_changes_the_cluster_and_only_what_was_seen(tmp_path: Path) -> None:
    manager = Manager(tmp_path, "--emulate", "gpu=8/4", "--require-token").start_guarded()
    try:
        member = manager.client.post("/tokens", {"name": "ada", "role": "member", "tenants": ["nlp"]})["token"]
        wanted = {"nodes": [{"name": "n1", "type": "gpu", "gpus": 4}]}
        with pytest.raises(Refused, match="this needs the role admin") as refused:
            Client(manager.client.url, member).change_cluster(wanted)
        assert refused.value.status == 403
        with pytest.raises(Refused, match="has changed meanwhile") as late:
            manager.client.change_cluster(wanted, if_match='"0123456789abcdef"')
        assert late.value.status == 412
        with pytest.raises(Refused, match=r"nodes\[0\]\.gpus"):
            manager.client.change_cluster({"nodes": [{"name": "n1", "gpus": "many"}]})
        assert len(manager.client.nodes()) == 2

        manager.client.change_cluster(wanted)

        assert [node["id"] for node in manager.client.nodes()] == ["n1"]
        audit = manager.client.get("/audit")
        assert (audit[0]["what"], audit[0]["who"], audit[0]["detail"]) == ("change", "first", "1 nodes removed")
    finally:
        manager.clean_up()
