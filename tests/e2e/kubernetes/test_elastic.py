"""Elastic gangs: pods without a slot wait while the others run, and a resize binds or evicts only pods it affects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from e2e.kubernetes.bed import Bed
from e2e.kubernetes.hollow import Hollow
from e2e.kubernetes.replica import Replica, View, gang, job, rota
from managers import eventually
from rota.sdk.client import Client

pytestmark = pytest.mark.slow
Launch = Callable[..., Replica]
Kubelets = Callable[..., Hollow]
Json = dict[str, Any]


def elastic(name: str, pods: int) -> Json:
    return job(name, pods, 1, notes={"rota.dev/min-tasks": "1"})


def holders(view: View, prefix: str) -> dict[str, Json]:
    return {each["metadata"]["uid"]: each for each in view.running(prefix)}


def shown(replica: Replica) -> dict[str, tuple[str, float]]:
    return {each["name"]: (each["state"], each["gpus"]) for each in Client(replica.url).jobs()}


def test_gang_grows_into_what_is_free_and_shrinks_for_others(
    managed: Bed, seen: View, launch: Launch, kubelets: Kubelets
) -> None:
    kubelets(managed, nodes=2, gpus=4, beats=True, end_s=1.0)
    replica = launch(managed, {"policy": "afs-p"})
    managed.admin.make(elastic("one", 8))
    eventually(lambda: len(holders(seen, "one")) == 8)
    before = set(holders(seen, "one"))

    managed.admin.make(elastic("two", 8))

    eventually(lambda: (len(holders(seen, "one")), len(holders(seen, "two"))) == (4, 4))
    kept = holders(seen, "one")
    assert set(kept) < before
    assert seen.promised_twice() == []
    halves = {"one": ("running", 4.0), "two": ("running", 4.0)}
    eventually(lambda: shown(replica) == halves)
    others = set(holders(seen, "two"))

    replica.kill()
    replica.start()
    eventually(lambda: shown(replica) == halves)
    assert (set(holders(seen, "one")), set(holders(seen, "two"))) == (set(kept), others)
    assert rota(managed, "cancel", "two").returncode == 0

    # Job controllers of current releases wait before they replace evicted pods, longer with each
    eventually(lambda: len(holders(seen, "one")) == 8, within_s=120 if managed.minor < 25 else 240)
    assert set(kept) < set(holders(seen, "one"))
    ranks = [each["metadata"]["annotations"]["rota.dev/seat"] for each in holders(seen, "one").values()]
    assert sorted(ranks) == [str(number) for number in range(8)]
    assert seen.promised_twice() == []


def test_gang_that_can_not_grow_runs_on_and_grows_when_its_pods_are_made_again(
    bed: Bed, view: View, launch: Launch, kubelets: Kubelets
) -> None:
    """No controller replaces evicted pods here; those of current releases take up to ten minutes."""
    kubelets(bed, nodes=2, gpus=4)
    replica = launch(bed, {"policy": "afs-p", "gang_timeout": "4s"})
    notes = {"rota.dev/min-tasks": "1"}
    one = gang("one", 8, 1, notes=notes)
    for value in one:
        bed.admin.make(value)
    eventually(lambda: len(holders(view, "one")) == 8)
    for value in gang("two", 8, 1, notes=notes):
        bed.admin.make(value)
    eventually(lambda: shown(replica) == {"one": ("running", 4.0), "two": ("running", 4.0)})
    kept = set(holders(view, "one"))

    assert rota(bed, "cancel", "two").returncode == 0
    eventually(lambda: "fewer pods than slots" in replica.log.read_text())
    eventually(lambda: replica.log.read_text().count("rota schedules") == 2)
    assert set(holders(view, "one")) == kept
    for value in one:
        if value["metadata"]["name"] not in view.pods():
            bed.admin.make(value)

    eventually(lambda: len(holders(view, "one")) == 8)
    assert kept < set(holders(view, "one"))
    assert view.promised_twice() == []


def test_spare_pods_say_so_and_go_when_the_job_has_succeeded(
    managed: Bed, seen: View, launch: Launch, kubelets: Kubelets
) -> None:
    kubelets(managed, nodes=1, gpus=2, beats=True)
    replica = launch(managed, {"policy": "fifo"})
    value = job("short", 3, 1, notes={"rota.dev/min-tasks": "1", "rota.dev/tasks": "2", "hollow/run-s": "8"})
    del value["spec"]["completions"]
    managed.admin.make(value)
    eventually(lambda: len(holders(seen, "short")) == 2 and len(seen.pods()) == 3)
    (spare,) = (name for name, each in seen.pods().items() if not each["spec"].get("nodeName"))

    seen.gets_reason(spare, "spare: its job runs with 2 tasks now")
    eventually(lambda: spare not in seen.pods())
    path = "/apis/batch/v1/namespaces/default/jobs/short"
    eventually(lambda: "Complete" in [each["type"] for each in managed.admin.get(path)["status"].get("conditions", ())])
    eventually(lambda: [each["state"] for each in Client(replica.url).jobs(all=True)] == ["succeeded"])
