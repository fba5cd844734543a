"""Small simulations of policies that share devices."""

from __future__ import annotations

from builders import cluster, node
from rota.core.model.job import DeviceType, Job
from rota.core.state.history import JobRow
from rota.drivers.simulator.study import Setting, simulate
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.model import Costs, SpeedModel
from rota.traces.workload import Submission, Workload

GPU = DeviceType("gpu")


def speeds(*pairs: tuple[str, str, float, float]) -> SpeedModel:
    """Models that do 10 steps a second alone, and so many each in these pairs; 0 in all others."""
    names = {name for one, other, _, _ in pairs for name in (one, other)}
    table = {(GPU, one, other, 1): (0.0, 0.0) for one in names for other in names}
    for one, other, of_one, of_other in pairs:
        table[GPU, one, other, 1] = (of_one, of_other)
        table[GPU, other, one, 1] = (of_other, of_one)
    return SpeedModel(
        profiles=Profiles(steps_per_s={(GPU, name, 1): 10.0 for name in names}, pairs=table, source="test")
    )


def run(
    policy: str,
    *jobs: Job | tuple[float, Job],
    gpus: int = 1,
    speed: SpeedModel | None = None,
    costs: Costs | None = None,
) -> dict[str, JobRow]:
    """What became of jobs that are submitted at 0, or at the time that is said."""
    timed = [each if isinstance(each, tuple) else (0.0, each) for each in jobs]
    submissions = tuple(Submission(job=asked, submit_s=at_s) for at_s, asked in timed)
    setting = Setting(cluster=cluster(node("n1", gpus)), speed=speed or SpeedModel(), costs=costs or Costs())
    history = simulate(Workload(submissions=submissions, source="test", format="rota"), policy, setting).history
    return {row.id: row for row in history.jobs}


def ends(rows: dict[str, JobRow]) -> dict[str, float]:
    """When each job ended."""
    return {name: round(row.end_s or 0.0, 6) for name, row in rows.items()}
