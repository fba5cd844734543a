"""Forecasts of pods are kept, scored and shown by `rota truth`, against the cluster's journal."""

from __future__ import annotations

import json
from typing import Any

import pytest

import forked
from e2e.kubernetes.bed import Bed
from e2e.kubernetes.conftest import Launch
from e2e.kubernetes.replica import Replica, pod
from managers import eventually
from rota.sdk.client import Client

pytestmark = pytest.mark.slow
RUN_S = "10"


def truth(replica: Replica) -> Any:
    return Client(replica.url).get("/truth?days=1")


def test_pods_that_wait_are_forecast_and_scored(bed: Bed, launch: Launch, kubelets: Any) -> None:
    kubelets(bed, nodes=1, gpus=1)
    replica = launch(bed, {"policy": "fifo"})
    for number in range(4):
        bed.admin.make(pod(f"p{number}", 1, notes={"hollow/run-s": RUN_S}))

    eventually(lambda: truth(replica)["all"]["scored"] >= 2, within_s=90)
    eventually(lambda: Client(replica.url).get("/jobs")["jobs"] == [], within_s=60)
    found = truth(replica)

    assert [row["group"] for row in found["groups"]["policy"]] == ["fifo"]
    assert found["all"]["coverage"] is not None
    assert found["calibration"]["start"]["seen"] >= 2
    answer = forked.run(["truth", "--server", replica.url, "--days", "1", "-o", "json"], timeout=90)
    printed = json.loads(answer.stdout)[0]
    assert printed["all"]["scored"] >= 2
    assert printed["simulated"]["real"]["metrics"]["finished"] == 4
    assert printed["simulated"]["error"]["jobs"] == 4
