"""Devices that are no GPUs: CPUs and a TPU beside GPUs, under every policy; and what happens where no type will do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from builders import job
from rota.cli.main import status
from rota.core.engine.engine import Engine
from rota.core.engine.invariants import check
from rota.core.messages.decisions import Decision, Renew, Start
from rota.core.messages.events import Event
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.cluster import Cluster
from rota.core.model.job import DeviceType, Job, JobId
from rota.core.state.state import State
from rota.drivers.simulator.device_types import typed_by_speed
from rota.drivers.simulator.run import run
from rota.drivers.simulator.speeds import scenario_speeds
from rota.drivers.simulator.study import Setting, scheduler, simulate
from rota.drivers.simulator.world import World
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.model import Costs, SpeedModel
from rota.policies import names
from rota.scenario import Scenario
from rota.traces.workload import Submission, Workload

CPU, GPU, TPU = DeviceType("xeon-6148"), DeviceType("v100"), DeviceType("tpu-v2")
MIXED = Cluster.uniform(("v100", 2, 2), ("xeon-6148", 4, 1), ("tpu-v2", 2, 2))
GAVEL = [name for name in names() if name.startswith("gavel/")]


def jobs(*asked: Job) -> Workload:
    submissions = tuple(Submission(job=each, submit_s=30.0 * n) for n, each in enumerate(asked))
    return Workload(submissions=submissions, source="a test", format="rota")


def ready(workload: Workload, cluster: Cluster = MIXED) -> tuple[Workload, Setting]:
    """As `rota sim` does it: catalogue speeds, and types by speed."""
    profiles = scenario_speeds(Scenario(), workload, cluster).profiles
    assert profiles is not None
    typed = typed_by_speed(workload.submissions, cluster, profiles)
    setting = Setting(cluster=cluster, speed=SpeedModel(profiles=profiles))
    return Workload(submissions=typed, source="a test", format="rota"), setting


class Whereabouts:
    """A journal that notes on which types each job was started."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.types: dict[JobId, set[DeviceType]] = {}

    def append(
        self,
        now_s: float,
        events: Sequence[Event],
        decisions: Sequence[Decision],
        waits: Sequence[tuple[JobId, Reason]],
    ) -> None:
        for decision in decisions:
            if isinstance(decision, Start | Renew):
                on = {self._cluster.nodes[slot.node].device_type for slot in decision.placement}
                self.types.setdefault(decision.job_id, set()).update(on)


def ran_on(workload: Workload, policy: str, setting: Setting) -> dict[JobId, set[DeviceType]]:
    notes = Whereabouts(setting.cluster)
    result = simulate(workload, policy, setting, journal=notes)
    assert all(record.end_s is not None for record in result.history.jobs)
    return notes.types


@pytest.mark.slow
@pytest.mark.parametrize("policy", names())
def test_every_policy_runs_jobs_on_cpus_gpus_and_tpus(policy: str) -> None:
    asked = [job(f"free-{n}", model="resnet50", work=1800.0) for n in range(8)]
    asked += [job("cpu", model="resnet50", work=600.0, device_types=(CPU,))]
    devices = 1 if policy == "gavel/allox" else 2  # AlloX is for jobs on a single device
    asked += [job("wide", model="vgg16", work=600.0, gpus=devices, device_types=(TPU, GPU))]
    workload, setting = ready(jobs(*asked))

    where = ran_on(workload, policy, setting)

    assert where[JobId("cpu")] == {CPU}
    assert where[JobId("wide")] <= {TPU, GPU}
    assert set.union(*where.values()) == {CPU, GPU, TPU}


def test_job_is_four_and_a_half_times_as_slow_on_the_cpus() -> None:
    """A two-socket server against a V100, by the figures of the catalogue."""
    workload, setting = ready(jobs(job("a", model="resnet50", work=3600.0, device_types=(CPU,))))

    (record,) = simulate(workload, "fifo", setting).history.jobs

    assert record.end_s == pytest.approx(3600 * 368 / 81.69)


def test_allox_sends_jobs_to_cpus_while_gpus_are_taken() -> None:
    """One GPU and two CPUs that are slower by a third: nobody waits for the GPU (Le et al., EuroSys 2020)."""
    speeds = {(GPU, "m", 1): 3.0, (CPU, "m", 1): 2.0}
    setting = Setting(
        cluster=Cluster.uniform(("v100", 1, 1), ("xeon-6148", 2, 1)),
        speed=SpeedModel(profiles=Profiles(steps_per_s=speeds, source="a test")),
    )
    workload = jobs(*(job(str(n), model="m", work=3600.0) for n in range(6)))

    where = ran_on(workload, "gavel/allox", setting)

    assert set.union(*where.values()) == {CPU, GPU}


@pytest.mark.parametrize("policy", GAVEL)
def test_share_is_only_of_types_with_enough_devices(policy: str) -> None:
    """Three devices at once: the two GPUs are fast, but only the four CPUs are enough."""
    if policy == "gavel/allox":
        pytest.skip("AlloX is for jobs on a single device")
    workload, setting = ready(jobs(job("wide", model="resnet50", work=600.0, gpus=1, workers=3)))

    assert ran_on(workload, policy, setting) == {JobId("wide"): {CPU}}


@pytest.mark.parametrize("policy", [*(name for name in GAVEL if name != "gavel/allox"), "fifo", "srtf", "tiresias"])
def test_job_that_no_type_can_hold_waits_with_a_reason(policy: str) -> None:
    cluster = Cluster.uniform(("v100", 2, 2), ("xeon-6148", 3, 1))
    asked = job("huge", model="resnet50", gpus=1, workers=4, device_types=(GPU, CPU))
    speeds = {(kind, "resnet50", 4): 1.0 for kind in (GPU, CPU)}
    setting = Setting(cluster=cluster, speed=SpeedModel(profiles=Profiles(steps_per_s=speeds, source="a test")))
    built, alloc, _ = scheduler(policy, setting)
    engine = Engine(State(cluster), built, alloc)
    world = World(cluster, setting.speed, Costs())
    world.expect(Submission(job=asked, submit_s=0.0))

    engine.step(0.0, [world.arrival(asked)])

    reason = engine.explain(asked.id)
    assert reason is not None
    assert reason.code is ReasonCode.NEVER_FITS
    check(engine.state)


@pytest.mark.parametrize("policy", ["gavel/max_min_fairness_perf", "fifo"])
def test_model_too_large_for_one_type_runs_on_the_other(policy: str) -> None:
    cluster = Cluster.uniform(("rtx2080ti", 4, 4), ("xeon-6148", 1, 1))
    workload, setting = ready(jobs(job("a", model="transformer-xl-large", work=60.0)), cluster)

    assert ran_on(workload, policy, setting) == {JobId("a"): {CPU}}


def sim(tmp_path: Path, jobs: list[dict[str, object]], cluster: str) -> int:
    path = tmp_path / "jobs.jsonl"
    path.write_text("\n".join(json.dumps({"submit_s": 0, "work": 60} | row) for row in jobs))
    return status(["sim", "--trace", str(path), "--cluster", cluster, "--policy", "gavel/fifo_perf", "--policy", "las"])


def test_short_form_names_cpus_and_tpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on_cpu: dict[str, object] = {"id": "b", "model": "googlenet", "roles": [{"device_types": ["xeon-6148"]}]}

    assert sim(tmp_path, [{"id": "a", "model": "resnet50"}, on_cpu], "v100=2/2,xeon-6148=4/1,tpu-v2=4/4") == 0

    assert "speeds: catalogue" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "cluster", "message"),
    [
        (
            {"model": "resnet50", "roles": [{"device_types": ["cpu"]}]},
            "v100=2/2,xeon-6148=1/1",
            "asks for device type 'cpu', which the cluster lacks",
        ),
        ({"model": "transformer-xl-large"}, "rtx2080ti=2/2", "has no speed above 0 on rtx2080ti"),
        ({"model": "resnet50", "gpus": 4}, "v100=2/2,xeon-6148=3/1", "needs 4 devices of one type"),
    ],
)
def test_no_type_fits_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], row: dict[str, object], cluster: str, message: str
) -> None:
    assert sim(tmp_path, [{"id": "a"} | row], cluster) == 2

    assert message in capsys.readouterr().err


def test_lone_run_of_the_world_checks_out() -> None:
    """The engine's books hold with three kinds of devices."""
    workload, setting = ready(jobs(*(job(str(n), model="bert-base", work=900.0) for n in range(10))))
    built, alloc, _ = scheduler("gavel/max_min_fairness_perf", setting)
    engine = Engine(State(setting.cluster), built, alloc)

    run(engine, World(setting.cluster, setting.speed, setting.costs), workload.submissions)

    check(engine.state)
