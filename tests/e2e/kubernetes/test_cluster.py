"""How Rota lives on a cluster: rights, turns between replicas, settings, restarts, what commands and journals show."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forked
from e2e.kubernetes.bed import Bed
from e2e.kubernetes.hollow import Hollow, node_object
from e2e.kubernetes.replica import Replica, View, configure, gang, pod, rota
from managers import eventually
from rota.live.intake.submission_limits import MOST_EVENTS
from rota.sdk.client import Client

pytestmark = pytest.mark.slow
Launch = Callable[..., Replica]
Kubelets = Callable[..., Hollow]
Json = dict[str, Any]


def test_settings_change_without_a_restart(bed: Bed, view: View, launch: Launch, kubelets: Kubelets) -> None:
    kubelets(bed, nodes=1)
    configure(bed, policy="fifo")
    replica = launch(bed, options=["--no-leader-election"])
    for number, gpus in enumerate((4, 8, 4)):
        bed.admin.make(pod(f"p{number}", gpus))
        time.sleep(0.3)
    eventually(lambda: view.waiting_for("p1"))
    assert view.node_of("p2") is None  # strict order: it waits behind the one that does not fit

    configure(bed, policy="fifo:backfill=true")

    eventually(lambda: view.node_of("p2"))
    refused = {
        "no-such-policy": "unknown policy",
        "fifo:nonsense=3": "has no parameter 'nonsense'",
        "priority:consolidate_s=60": "emits move decisions, which the Kubernetes driver does not support",
    }
    for policy, why in refused.items():
        configure(bed, policy=policy)
        eventually(lambda why=why: why in replica.log.read_text())  # type: ignore[misc]
    bed.admin.make(pod("p3", 0))
    eventually(lambda: view.node_of("p3"))
    assert replica.process is not None
    assert replica.process.poll() is None


def test_restart_finds_what_runs_and_goes_on(bed: Bed, view: View, launch: Launch, kubelets: Kubelets) -> None:
    kubelets(bed, nodes=2)
    replica = launch(bed)
    for value in gang("run", 2, 6):
        bed.admin.make(value)
    eventually(lambda: len(view.bound("run")) == 2)
    before = {name: each["metadata"]["annotations"] for name, each in view.pods().items()}

    replica.kill()
    replica.start()
    bed.admin.make(pod("more", 2))
    bed.admin.make(pod("too-much", 4))

    eventually(lambda: view.node_of("more"))
    eventually(lambda: view.waiting_for("too-much"))
    assert {name: view.pods()[name]["metadata"]["annotations"] for name in before} == before
    assert view.promised_twice() == []
    journal = b"".join(Client(replica.url).journal())
    assert b"Resynced: 1 jobs found on 2 nodes" in journal.splitlines()[0]


def test_pods_that_wait_at_a_start_get_no_devices_that_others_hold(bed: Bed, view: View, launch: Launch) -> None:
    """They are many steps of the engine: what other schedulers' pods hold is known before the first of them."""
    for node in ("n1", "n2"):
        bed.admin.make(node_object(node, 64))
        bed.admin.make(pod(f"other-{node}", 63, schedulerName="other", nodeName=node))
    names = [f"p{number}" for number in range(MOST_EVENTS + 10)]
    for name in names:
        bed.admin.make(pod(name))
    replica = launch(bed)

    def undecided() -> list[str]:
        pods = view.pods()
        return [name for name in names if not pods[name]["status"].get("conditions")]

    eventually(lambda: not undecided(), within_s=60)
    assert len(view.bound("p")) == 2
    replica.kill()
    bed.admin.delete(f"/api/v1/namespaces/default/pods/{min(view.bound('p'))}", {"gracePeriodSeconds": 0})
    replica.start()
    eventually(lambda: len(view.bound("p")) >= 2, within_s=60)
    bed.admin.make(pod("last", 0))
    eventually(lambda: view.node_of("last"))
    assert len(view.bound("p")) == 2
    assert view.promised_twice() == []


def test_journal_of_a_cluster_is_replayed_and_answers_what_if(
    bed: Bed, view: View, tmp_path: Path, launch: Launch, kubelets: Kubelets
) -> None:
    kubelets(bed, nodes=1)
    replica = launch(bed, {"policy": "fifo"})
    for number in range(6):
        bed.admin.make(pod(f"p{number}", 4, notes={"hollow/run-s": "1"}))
    eventually(lambda: all(each["status"]["phase"] == "Succeeded" for each in view.pods().values()))
    ended = eventually(
        lambda: [job for job in Client(replica.url).jobs(all=True) if job["state"] == "succeeded"][5:] and True
    )
    assert ended
    journal = tmp_path / "journal.jsonl"
    journal.write_bytes(b"".join(Client(replica.url).journal()))

    replayed = forked.run(["sim", "--replay", str(journal)])
    assert replayed.returncode == 0, replayed.stderr
    answered = forked.run(["sim", "--trace", str(journal), "--policy", "srtf", "-o", "json"])
    assert answered.returncode == 0, answered.stderr
    assert json.loads(answered.stdout)[0]["finished"] == 6


def test_commands_work_on_a_cluster(bed: Bed, view: View, launch: Launch, kubelets: Kubelets) -> None:
    kubelets(bed, nodes=1)
    launch(bed)
    bed.admin.make(pod("runs", 6))
    eventually(lambda: view.pods()["runs"]["status"]["phase"] == "Running")
    bed.admin.make(pod("waits", 4))
    eventually(lambda: view.waiting_for("waits"))

    listed = {job["name"]: job for job in json.loads(rota(bed, "ps", "-o", "json").stdout)}

    assert {name: job["state"] for name, job in listed.items()} == {"runs": "running", "waits": "waiting"}
    assert listed["waits"]["reason"].startswith("needs 4 devices, 2 devices available now")
    assert "needs 4 devices" in rota(bed, "why", "waits").stdout
    nodes = json.loads(rota(bed, "nodes", "-o", "json").stdout)
    assert [(node["id"], node["free_gpus"], node["state"]) for node in nodes] == [("n1", 2, "up")]
    assert "runs" in rota(bed, "top").stdout
    assert rota(bed, "cancel", "runs").returncode == 0
    eventually(lambda: "runs" not in view.pods())
    eventually(lambda: view.node_of("waits"))


def test_dashboard_and_metrics_are_there(bed: Bed, view: View, launch: Launch, kubelets: Kubelets) -> None:
    import httpx

    kubelets(bed, nodes=1)
    replica = launch(bed)
    bed.admin.make(pod("runs", 6))
    eventually(lambda: view.node_of("runs"))

    assert "rota_jobs" in httpx.get(f"{replica.url}/metrics").text
    assert httpx.get(f"{replica.url}/readyz").status_code == 200
    assert httpx.get(f"{replica.url}/", follow_redirects=True).status_code == 200
    jobs = eventually(lambda: [job for job in Client(replica.url).jobs() if job["state"] == "running"])
    assert (jobs[0]["name"], jobs[0]["gpus"], jobs[0]["tenant"]) == ("runs", 6, "default")


def test_nodes_come_go_and_are_cordoned(bed: Bed, view: View, launch: Launch, kubelets: Kubelets) -> None:
    kubelets(bed, nodes=1)
    manager = Client(launch(bed).url)
    bed.admin.patch("/api/v1/nodes/n1", {"spec": {"unschedulable": True}})
    eventually(lambda: manager.nodes()[0]["state"] == "drained")  # news of nodes and of pods come by ways of their own
    bed.admin.make(pod("p", 4))

    view.gets_reason("p", "nodes-down: needs 4 devices")
    bed.admin.make(node_object("n2", 8, labels={"zone": "b"}))
    eventually(lambda: view.node_of("p") == "n2")
    bed.admin.make(pod("picky", 1, nodeSelector={"zone": "a"}))
    view.gets_reason("picky", "no-matching-node")
    bed.admin.patch("/api/v1/nodes/n1", {"spec": {"unschedulable": False}, "metadata": {"labels": {"zone": "a"}}})
    eventually(lambda: view.node_of("picky") == "n1")


def test_pod_group_starts_its_pods_together_and_shows_where_it_stands(
    bed: Bed, view: View, launch: Launch, kubelets: Kubelets
) -> None:
    kubelets(bed, nodes=1)
    launch(bed)
    group = {"apiVersion": "rota.dev/v1alpha1", "kind": "PodGroup", "metadata": {"name": "pair"}}
    bed.admin.make({**group, "spec": {"minMember": 2}})
    path = "/apis/rota.dev/v1alpha1/namespaces/default/podgroups/pair"
    labels = {"rota.dev/pod-group": "pair"}
    bed.admin.make(pod("pair-0", 4, labels=labels))

    eventually(lambda: bed.admin.get(path).get("status", {}).get("reason") == "gang-incomplete")
    bed.admin.make(pod("pair-1", 4, labels=labels))
    eventually(lambda: bed.admin.get(path)["status"] == _running(2))


def _running(pods: int) -> Json:
    return {"phase": "Running", "pods": pods, "running": pods}


def test_policy_that_plans_in_rounds_schedules_pods(bed: Bed, view: View, launch: Launch, kubelets: Kubelets) -> None:
    kubelets(bed, nodes=1)
    replica = launch(bed, {"policy": "gavel/max_min_fairness:round_s=2"})
    for number in range(3):
        bed.admin.make(pod(f"p{number}", 4, notes={"hollow/run-s": "3"}))

    eventually(lambda: len(view.bound("p")) == 2)
    eventually(lambda: any(each["status"]["phase"] == "Succeeded" for each in view.pods().values()), within_s=60)
    assert replica.process is not None
    assert replica.process.poll() is None
    assert view.promised_twice() == []


def test_learned_policy_places_pods(bed: Bed, view: View, launch: Launch, kubelets: Kubelets) -> None:
    """By name as any other: pods that send much stay together, and only where they may go; the network placed them."""
    kubelets(bed, nodes=2, gpus=4)
    tainted = node_object("tainted", 8)
    tainted["spec"] = {"taints": [{"key": "team", "value": "vision", "effect": "NoSchedule"}]}
    bed.admin.make(tainted)
    replica = launch(bed, {"policy": "harmony"})
    for name in ("one", "two"):
        for value in gang(name, 2, 2, notes={"rota.dev/model": "vgg16"}):
            bed.admin.make(value)

    eventually(lambda: len(view.bound("one")) == len(view.bound("two")) == 2)

    assert [len(set(view.bound(name).values())) for name in ("one", "two")] == [1, 1]
    assert "tainted" not in view.bound("").values()
    assert view.promised_twice() == []
    journal = b"".join(Client(replica.url).journal()).decode()
    assert '"order":"start"' in journal
    assert '["model","vgg16"]' in journal
    assert "placed-by-heuristic" not in journal
