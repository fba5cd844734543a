"""The order inside a queue of `las` is that of a list which is partitioned at every event."""

from __future__ import annotations

import random

import pytest

from builders import job
from policies.ordering.list_las import ListedJob, ListedLas
from rota.drivers.simulator.study import Setting, simulate
from rota.files.cluster import read_cluster
from rota.traces.workload import Submission, Workload


def _jobs(seed: int, count: int) -> list[ListedJob]:
    """Jobs at whole seconds whose limits and ends rarely fall together."""
    rng = random.Random(seed)
    at_s, made = 0, []
    for number in range(count):
        at_s += rng.choice((0, 1, 40, 400))
        made.append(ListedJob(str(number), float(at_s), rng.choice((1, 1, 2, 4)), float(rng.randrange(7, 9000))))
    return made


@pytest.mark.parametrize("seed", range(4))
def test_ends_and_preemptions_are_those_of_partitioned_lists(seed: int) -> None:
    expected = _jobs(seed, 60)
    ListedLas(devices=8).run(expected)
    workload = Workload(
        submissions=tuple(
            Submission(job=job(each.name, workers=each.gpus, work=each.work_s), submit_s=each.submit_s)
            for each in expected
        ),
        source="random",
        format="rota",
    )

    history = simulate(workload, "las", Setting(cluster=read_cluster("gpu=8/8"), placement="any")).history

    found = [(row.id, round(row.end_s or 0.0, 3), row.preemptions) for row in history.jobs]
    assert found == [(each.name, round(each.end_s, 3), each.preemptions) for each in expected]
    assert sum(each.preemptions for each in expected) > 10
