"""The end of a term: nothing that is under way then ends the scheduler, and no request waits in vain."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from e2e.kubernetes.bad_weather import BadWeather
from e2e.kubernetes.bed import Bed
from e2e.kubernetes.hollow import Hollow
from e2e.kubernetes.replica import Replica, View, configure, pod
from managers import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def weather(bed: Bed) -> Iterator[BadWeather]:
    made = BadWeather(bed.kubeconfig()).start()
    yield made
    made.stop()


def test_steps_and_requests_at_the_end_of_a_term(
    bed: Bed,
    view: View,
    launch: Callable[..., Replica],
    kubelets: Callable[..., Hollow],
    weather: BadWeather,
) -> None:
    """Settings change while binds are under way, jobs are cancelled and others may start."""
    kubelets(bed, nodes=2, gpus=8)
    configure(bed)
    replica = launch(bed, options=["--port", "0"], kubeconfig=weather.kubeconfig)
    weather.late_s = 0.3
    slow: list[float] = []
    over = threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=replica.url, timeout=30) as client:
            while not over.is_set():
                begun = time.monotonic()
                found = client.get("/api/v1/jobs", params={"state": "running"})
                ids = [each["id"] for each in found.json()["jobs"]] if found.status_code == 200 else []
                for name in ids[:2]:
                    client.post(f"/api/v1/jobs/{name}/cancel")
                slow.append(time.monotonic() - begun)
                time.sleep(0.05)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for turn in range(6):
            for number in range(8):
                bed.admin.make(pod(f"p{turn}-{number}", 2))
            time.sleep(0.4)
            configure(bed, settle=f"0.{turn + 2}s")
    finally:
        weather.late_s = 0.0
        over.set()
        asking.join()
    assert replica.process is not None
    assert replica.process.poll() is None, replica.log.read_text()[-3000:]
    assert max(slow) < 20
    bed.admin.delete("/api/v1/namespaces/default/pods", {"gracePeriodSeconds": 0})
    bed.admin.make(pod("last", 8))
    eventually(lambda: view.node_of("last"))
