"""Hangs and stragglers in a manager whose jobs end at any moment."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rota.core.model.job import JobId, JobState
from rota.files.up_file import HealthPart
from rota.live.health.stall_watch import StallWatch


def test_job_that_ends_during_a_look_does_not_end_the_watch(tmp_path: Path) -> None:
    live = SimpleNamespace(job=SimpleNamespace(id=JobId("1")), state=JobState.RUNNING, held=())
    control: Any = SimpleNamespace(state=SimpleNamespace(jobs={JobId("1"): live}), kept={})
    failures: Any = None
    watch = StallWatch(control, HealthPart(), tmp_path, failures)

    asyncio.run(watch.look(1.0))
