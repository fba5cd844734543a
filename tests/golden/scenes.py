"""The runs whose journals are kept: a written scene with one of everything, and a generated trace.

Run as a program, it writes all journals into a folder: `python scenes.py FOLDER`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from builders import GIB, cluster, job, node
from rota.core.model.cluster import Cluster
from rota.core.model.job import Checkpoint, Elastic, JobId, Locality, NodeId, Role, TenantId
from rota.drivers.simulator.study import Setting, scheduler, simulate
from rota.perf.speed.model import Costs, SpeedModel
from rota.scenario import Scenario
from rota.store.journal import JournalHeader, JournalWriter
from rota.traces import Outcome, Submission, Workload, read_trace

HERE = Path(__file__).parent
POLICIES = (
    "fifo",
    "fifo:backfill=true",
    "easy",
    "fewest-gpus",
    "srtf",
    "srsf",
    "las:thresholds=300/1200",
    "gittins:thresholds=300/1200",
    "tiresias:thresholds=300/1200,promote=2",
    "e-las",
    "priority:aging=20",
    "drf",
    "fair-share:half_life_s=60",
)
SCENES = ("written", "mixed")

RED, BLUE = TenantId("red"), TenantId("blue")
ROLES = (Role(count=2, cpu_milli=2000), Role(name="ps", device_milli=0, cpu_milli=4000))
SUBMISSIONS = (
    Submission(job=job("long", gpus=1, workers=4, work=400.0, tenant=RED), submit_s=0.0),
    Submission(job=job("wide", gpus=4, workers=2, work=90.0, tenant=BLUE, priority=1), submit_s=5.0),
    Submission(job=job("roles", roles=ROLES, work=60.0, tenant=RED), submit_s=5.0),
    Submission(job=job("half", gpus=0.5, workers=3, work=50.0, tenant=BLUE), submit_s=20.0),
    Submission(job=job("fails", gpus=2, work=80.0, tenant=RED), submit_s=25.0, outcome=Outcome.FAILED, ends_at=0.5),
    Submission(job=job("after", gpus=1, work=10.0, depends_on=(JobId("fails"),)), submit_s=26.0),
    Submission(job=job("alone", gpus=1, work=30.0, exclusive=True, priority=2, tenant=BLUE), submit_s=30.0),
    Submission(job=job("late", gpus=1, work=500.0, time_limit_s=100.0, tenant=RED), submit_s=40.0),
    Submission(
        job=job("grows", workers=6, work=120.0, elastic=Elastic(min_tasks=2, max_tasks=6), tenant=BLUE), submit_s=60.0
    ),
    Submission(
        job=job("near", workers=4, work=40.0, locality=Locality(hard=True, relax_after_s=50.0), tenant=RED),
        submit_s=70.0,
    ),
    Submission(job=job("saved", gpus=2, work=200.0, checkpoint=Checkpoint(interval_s=25.0)), submit_s=75.0),
    Submission(job=job("then", gpus=1, work=20.0, depends_on=(JobId("roles"),), tenant=RED), submit_s=80.0),
    Submission(job=job("urgent", gpus=4, work=15.0, priority=5, tenant=BLUE), submit_s=200.0),
    Submission(job=job("small", gpus=1, work=5.0, tenant=RED), submit_s=201.0),
)
FAULTS = (
    (150.0, NodeId("n1"), False),
    (180.0, NodeId("n1"), True),
    (260.0, NodeId("n2"), False),
    (300.0, NodeId("n2"), True),
)


def scene(name: str) -> tuple[Workload, Setting]:
    """A workload and where it runs."""
    if name == "mixed":
        return read_trace(HERE / "mixed.jsonl"), Setting(cluster=Cluster.uniform(("gpu", 16, 4)))
    of = cluster(
        node("n1", 4, cpu_milli=16_000, memory_bytes=64 * GIB, sockets=(2, 2), rack="r1"),
        node("n2", 4, cpu_milli=16_000, memory_bytes=64 * GIB, rack="r1"),
        node("n3", 4, cpu_milli=16_000, memory_bytes=64 * GIB, rack="r2"),
    )
    setting = Setting(
        cluster=of,
        costs=Costs(restart_s=4.0, checkpoint_interval_s=20.0),
        speed=SpeedModel(node_neighbour=0.75),
        fault_list=FAULTS,
    )
    return Workload(submissions=SUBMISSIONS, source="written", format="rota"), setting


def file_name(scene_name: str, policy: str) -> str:
    """The journal's file, by scene and policy."""
    return f"{scene_name}-{policy.partition(':')[0]}{'-backfill' if 'backfill' in policy else ''}.journal"


def write(scene_name: str, policy: str, path: Path) -> None:
    """Run a scene under a policy and keep its journal."""
    workload, setting = scene(scene_name)
    _, _, placement = scheduler(policy, setting)
    header = JournalHeader(
        scenario=Scenario(policies=(policy,), placement=placement, tenancy=setting.tenancy, cluster=setting.cluster)
    )
    with JournalWriter(path, header) as journal:
        simulate(workload, policy, setting, journal=journal)


def write_all(folder: Path) -> None:
    """Every scene under every policy."""
    for scene_name in SCENES:
        for policy in POLICIES:
            write(scene_name, policy, folder / file_name(scene_name, policy))


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
