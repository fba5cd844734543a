"""How far neighbours of a guaranteed job are throttled, and on which devices jobs can be co-located."""

from __future__ import annotations

import pytest

from builders import cluster, job, node
from rota.core.model.job import WHOLE
from rota.core.model.placement import Slot
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.phases import Phase
from rota.mechanisms.colocation.groups import on_devices_of
from rota.mechanisms.colocation.interference_bound import InterferenceBounds, ThrottledNeighbour
from rota.perf.speed.model import SpeedModel
from rota.perf.speed.throttling import PAUSED


def running(seq: int, *, milli: int = WHOLE, rate: float = 1.0, devices: int = 0b1, gpus: float = 1) -> LiveJob:
    """A settled job that holds a fraction of its devices."""
    made = LiveJob(job(f"j{seq}", gpus=gpus), seq, 0.0, 1.0)
    made.phase = Phase.RUNNING
    made.placement = (Slot(0, devices, 1, 0, milli),)
    made.gpu_milli = made.run_milli = milli
    made.rate = rate
    return made


def test_neighbour_is_throttled_by_the_loss_and_further_at_the_second_time() -> None:
    bounds = InterferenceBounds(SpeedModel(), guard=0.9)
    levels = []
    for milli, rate in ((PAUSED, 1.0), (500, 0.8), (250, 0.88), (187, 0.95)):
        guaranteed, other = running(0, rate=rate), running(1, milli=milli)
        bounds.observe(guaranteed, [ThrottledNeighbour(other, True)], ((0, 1),), (), None)
        levels.append(bounds.level(guaranteed, other))

    # A loss of 0.2 with 0.1 allowed halves it; one of 0.12 would leave 0.83, but at the second time at most 0.75.
    assert levels == [500, 250, 187, 187]


@pytest.mark.parametrize(
    ("gpus", "workers", "fits"),
    [(1, 3, True), (3, 1, True), (2, 1, False), (1, 2, False), (1, 4, False)],
    ids=["three-tasks", "one-task", "one-device-left-over", "too-few-tasks", "too-many-tasks"],
)
def test_job_is_co_located_only_on_all_devices_of_its_host(gpus: float, workers: int, fits: bool) -> None:
    host = running(0, devices=0b111, gpus=3)
    found = on_devices_of(job(gpus=gpus, workers=workers), host, Inventory(cluster(node("n", 4))))

    assert found == ((Slot(0, 0b111, workers, 0, WHOLE),) if fits else None)
