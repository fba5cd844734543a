"""Device types for jobs whose speed was measured: only where they run, fastest first."""

from __future__ import annotations

import pytest

from builders import job
from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.core.model.job import DeviceType, Job, Role
from rota.drivers.simulator.device_types import typed_by_speed
from rota.perf.profiles.speed_table import Profiles
from rota.traces.workload import Submission

FAST, SLOW, NONE = DeviceType("fast"), DeviceType("slow"), DeviceType("none")
SPEEDS = {(SLOW, "m", 1): 1.0, (FAST, "m", 1): 9.0, (NONE, "m", 1): 0.0, (NONE, "z", 1): 0.0}
PROFILES = Profiles(steps_per_s=SPEEDS, source="speeds.json")
MIXED = Cluster.uniform(("slow", 4, 4), ("none", 4, 4), ("fast", 4, 4))


def types(asked: Job, of: Cluster = MIXED) -> list[tuple[DeviceType, ...]]:
    (typed,) = typed_by_speed([Submission(job=asked, submit_s=0.0)], of, PROFILES)
    return [role.device_types for role in typed.job.roles]


def test_measured_job_asks_for_the_types_on_which_it_runs() -> None:
    assert types(job(model="m")) == [(FAST, SLOW)]


def test_jobs_own_types_and_unknown_models_are_left_alone() -> None:
    assert types(job(model="m", device_types=(NONE,))) == [(NONE,)]
    assert types(job()) == [()]


def test_role_without_devices_goes_anywhere() -> None:
    roles = (Role(), Role(name="ps", device_milli=0))

    assert types(job(model="m", roles=roles)) == [(FAST, SLOW), ()]


@pytest.mark.parametrize(
    ("model", "message"), [("z", "has no speed above 0 on slow, none, fast"), ("y", "no speed of model 'y'")]
)
def test_model_that_runs_nowhere_is_refused(model: str, message: str) -> None:
    with pytest.raises(RotaError, match=message):
        types(job(model=model))
