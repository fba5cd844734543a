"""Recorded jobs whose gangs are gone from the cluster when Rota starts again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest

from builders import cluster, job, node
from rota.core.model.job import JobId
from rota.core.state.state import State
from rota.drivers.kubernetes.driver import KubernetesDriver
from rota.drivers.kubernetes.objects.pods import PodPhase
from rota.live.loop.kubernetes_loop import _close_missing, _write_found
from rota.live.loop.record import Record
from rota.store.database import open_database
from rota.store.records import Records


class LeftPods:
    """The phases of pods that the cluster still has."""

    def __init__(self, phases: list[PodPhase]) -> None:
        self._phases = phases

    def phases_by_job(self) -> dict[JobId, list[PodPhase]]:
        """Phases by job."""
        return {JobId("a"): self._phases} if self._phases else {}


@pytest.mark.parametrize(
    ("phases", "state", "message"),
    [
        ([PodPhase.SUCCEEDED, PodPhase.SUCCEEDED], "succeeded", ""),
        ([PodPhase.SUCCEEDED, PodPhase.FAILED], "failed", ""),
        ([PodPhase.SUCCEEDED, PodPhase.RUNNING], "cancelled", ""),
        ([], "cancelled", "its pods were gone when Rota restarted"),
    ],
)
def test_missing_job_ends_as_its_pods_did(tmp_path: Path, phases: list[PodPhase], state: str, message: str) -> None:
    records = Records(open_database(tmp_path / "rota.db"))
    live = State(cluster(node("n1")))
    live.admit(job("a"), 1.0)
    _write_found(records, live, {JobId("a"): Record(json.dumps({"run": "true"}))}, [JobId("a")], {})

    _close_missing(records, cast(KubernetesDriver, LeftPods(phases)), records.live_jobs())

    row = records.job("a")
    records.close()
    assert row is not None
    assert (row.state, row.message) == (state, message)
    assert row.ended_s is not None
