"""Progress that pods report by an annotation reaches the policy, the journal, and what replays it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import forked
from e2e.kubernetes.bed import Bed
from e2e.kubernetes.hollow import Hollow
from e2e.kubernetes.replica import Replica, View, pod
from managers import eventually
from rota.sdk.client import Client

pytestmark = pytest.mark.slow
POLICY = "rota:base_gpu_s=40,margin=0"
"""The first level ends at 40 device-seconds: from then on a job gives way to a new one."""


def reports(replica: Replica) -> list[float]:
    """The fractions done in the journal."""
    steps = [json.loads(line) for line in b"".join(Client(replica.url).journal()).splitlines()]
    return [event["done"] for step in steps for event in step.get("in", ()) if "done" in event]


def states(replica: Replica) -> dict[str, str]:
    return {each["name"]: each["state"] for each in Client(replica.url).jobs(all=True)}


@pytest.mark.parametrize("tells", [True, False], ids=["reports", "says-nothing"])
def test_job_that_is_nearly_done_is_not_stopped_for_a_new_one(
    bed: Bed, view: View, launch: Callable[..., Replica], kubelets: Callable[..., Hollow], tmp_path: Path, tells: bool
) -> None:
    kubelets(bed, nodes=1, gpus=1)
    replica = launch(bed, {"policy": POLICY})
    bed.admin.make(pod("long-0", 1))
    eventually(lambda: len(view.running("long")) == 1)
    begun_s = time.time()
    if tells:
        note = {"metadata": {"annotations": {"rota.dev/progress": "990/1000"}}}
        bed.admin.patch("/api/v1/namespaces/default/pods/long-0", note)
        eventually(lambda: reports(replica) == [0.99], within_s=60)
    eventually(lambda: time.time() - begun_s > 44.0)

    bed.admin.make(pod("new-0", 1))

    if not tells:
        eventually(lambda: len(view.running("new")) == 1)
        return
    view.gets_reason("new-0", "device", within_s=30.0)
    assert states(replica) == {"long-0": "running", "new-0": "waiting"}
    journal = tmp_path / "journal.jsonl"
    journal.write_bytes(b"".join(Client(replica.url).journal()))
    replayed = forked.run(["sim", "--replay", str(journal)])
    assert (replayed.returncode, "differ" in replayed.stdout + replayed.stderr) == (0, False)
