"""Which cluster a job is sent to, and the copy that it gets there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from e2e.kubernetes.replica import job
from rota.core.errors import RotaError
from rota.drivers.kubernetes.dispatch.choice import ClusterOffer, JobNeeds, choose
from rota.drivers.kubernetes.dispatch.clusters_file import read_dispatch_file
from rota.drivers.kubernetes.dispatch.copies import copy_of, needs_of, state_of_copy
from rota.drivers.kubernetes.objects.owner_jobs import as_held
from rota.drivers.kubernetes.settings import ClusterSettings

FREE = ClusterOffer(cluster="free", room=8, free=8)
BUSY = ClusterOffer(cluster="busy", room=16, free=0)
SOON = ClusterOffer(cluster="soon", room=8, free=0, waits_s=60.0)
LATE = ClusterOffer(cluster="late", room=8, free=0, waits_s=3600.0)
REFUSES = ClusterOffer(cluster="refuses", room=8, free=8, why_not="job: no such tenant")
SMALL = ClusterOffer(cluster="small", room=1, free=1)
TWO = JobNeeds(tasks=2, devices=8)


@pytest.mark.parametrize(
    ("offers", "cluster"),
    [
        ([BUSY, FREE], "free"),
        ([LATE, SOON], "soon"),
        ([SOON, FREE], "free"),
        ([BUSY, LATE], "late"),
        ([REFUSES, BUSY], "busy"),
        ([SMALL, LATE], "late"),
        ([SMALL, REFUSES], None),
        ([], None),
    ],
)
def test_soonest_start_wins(offers: list[ClusterOffer], cluster: str | None) -> None:
    for each in (offers, offers[::-1]):
        assert choose(TWO, each, {}, 1.0).cluster == cluster


def test_data_counts_as_the_time_it_takes_to_move() -> None:
    far = ClusterOffer(cluster="far", room=8, free=8, waits_s=0.0, site="b")
    near = ClusterOffer(cluster="near", room=8, free=0, waits_s=600.0, site="a")
    little, much = (JobNeeds(tasks=1, devices=1, site="a", data_bytes=size) for size in (10**11, 10**12))

    assert choose(little, [far, near], {}, 1.0).cluster == "far"  # 100 s at 1 GB/s
    assert choose(much, [far, near], {}, 1.0).cluster == "near"  # 1,000 s
    assert choose(much, [far, near], {"a": {"b": 10.0}}, 1.0).cluster == "far"
    assert choose(much, [far], {}, 1.0).why == "far is expected to start it in 0 s; moving its data takes 1000 s"


def test_why_no_cluster_takes_it_names_each() -> None:
    assert choose(TWO, [SMALL, REFUSES], {}, 1.0).why == (
        "no cluster can take it: refuses: job: no such tenant; small: fits 1 of 2 tasks of 8 devices"
    )


def test_copy_is_the_job_as_it_was_meant() -> None:
    hub = as_held(job("x", 3, 2, notes={"rota.dev/estimate": "1h"}))
    hub["metadata"] |= {"uid": "0123456789", "labels": {"rota.dev/dispatch": "true", "team": "nlp"}}
    hub["spec"]["selector"] = {"matchLabels": {"controller-uid": "u"}}
    hub["spec"]["template"]["metadata"]["labels"] = {"controller-uid": "u", "job-name": "x"}
    hub["spec"]["suspend"] = True

    made = copy_of(hub, 2)

    assert needs_of(hub, ClusterSettings()) == JobNeeds(tasks=3, devices=2)
    assert (made["metadata"]["name"], made["spec"]["parallelism"]) == ("x-01234567", 3)
    assert not {"selector", "suspend"} & set(made["spec"])
    assert made["spec"]["template"]["metadata"]["labels"] == {}
    assert made["metadata"]["labels"] == {"team": "nlp", "rota.dev/dispatched": "true"}
    assert made["metadata"]["annotations"] == {"rota.dev/dispatched-from": "0123456789", "rota.dev/dispatch-turn": "2"}
    assert state_of_copy({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}) == "succeeded"
    assert state_of_copy({"status": {"active": 1}}) == "running"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hub: {}\nclusters: {}", "clusters is empty"),
        ("hub: {}\nclusters: {a: {sit: x}}", "unknown field clusters.a.sit; did you mean 'site'?"),
        ("hub: {}\nclusters: {a: {site: x}}\nbandwidth: {y: {x: 1}}", "bandwidth names site 'y', where no cluster is"),
    ],
)
def test_file_names_the_field_that_is_wrong(text: str, words: str, tmp_path: Path) -> None:
    path: Any = tmp_path / "clusters.yaml"
    path.write_text(text)
    with pytest.raises(RotaError, match=words.replace("?", r"\?")):
        read_dispatch_file(path)
