"""What goes wrong: Rota killed, the API server away, slow or refusing, watches cut and expired, pods gone meanwhile."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from e2e.kubernetes.bad_weather import BadWeather
from e2e.kubernetes.bed import Bed, KubeError
from e2e.kubernetes.hollow import Hollow
from e2e.kubernetes.replica import Replica, View, configure, gang, job, pod
from managers import eventually

pytestmark = pytest.mark.slow
Launch = Callable[..., Replica]
Kubelets = Callable[..., Hollow]
GANG_TIMEOUT_S = 10.0
FULL = os.environ.get("ROTA_CHAOS") == "full"
KILLS, GANGS_BETWEEN = (20, 5) if FULL else (3, 5)


only_in_full = pytest.mark.skipif(not FULL, reason="a lease has to run out first; `make chaos` waits for that")


class Watchman:
    """Looks again and again whether a gang is bound in part, and whether a device was promised twice."""

    def __init__(self, view: View, size: int) -> None:
        self._view = view
        self._size = size
        self._part_s: dict[str, float] = {}
        self.longest_s = 0.0
        """For how long a gang was bound in part while there was somebody to do something about it."""
        self.looks_away = False
        self.twice: list[tuple[str, str]] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Watchman:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopping.set()
        self._thread.join(timeout=30)

    def _work(self) -> None:
        last_s = time.monotonic()
        while not self._stopping.wait(0.25):
            try:
                pods = self._view.pods().values()
                self.twice += self._view.promised_twice()
            except (KubeError, httpx.HTTPError):  # the API server may be away just now
                continue
            bound: dict[str, int] = {}
            for each in pods:
                name = each["metadata"]["labels"].get("rota.dev/job")
                if name is not None and each["spec"].get("nodeName"):
                    bound[name] = bound.get(name, 0) + 1
            now_s = time.monotonic()
            passed_s, last_s = (0.0 if self.looks_away else now_s - last_s), now_s
            part = {name for name, count in bound.items() if count < self._size}
            self._part_s = {name: self._part_s.get(name, 0.0) + passed_s for name in part}
            self.longest_s = max([self.longest_s, *self._part_s.values()])


@pytest.fixture
def weather(bed: Bed) -> Iterator[BadWeather]:
    made = BadWeather(bed.kubeconfig()).start()
    yield made
    made.stop()


def flow(bed: Bed, gangs: int, size: int, every_s: float, turns: threading.Semaphore | None = None) -> threading.Thread:
    """Gangs that come one after the other and run for a moment; each when it is given a turn, if there are turns."""

    def work() -> None:
        for number in range(gangs):
            if turns is not None:
                turns.acquire()
            for value in gang(f"g{number}", size, 1, notes={"hollow/run-s": "0.5"}):
                while True:
                    try:
                        bed.admin.make(value)
                        break
                    except (KubeError, httpx.HTTPError):
                        time.sleep(0.2)
            time.sleep(every_s)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def all_done(view: View, pods: int) -> bool:
    found = view.pods()
    return len(found) == pods and all(each["status"]["phase"] == "Succeeded" for each in found.values())


def wait_until_done(view: View, replica: Replica, pods: int, within_s: float = 120.0) -> None:
    """All pods have succeeded; if not, what is left and what Rota said of it."""
    try:
        eventually(lambda: all_done(view, pods), within_s=within_s, every_s=0.5)
    except AssertionError:
        left = {name: each["status"] for name, each in view.pods().items() if each["status"]["phase"] != "Succeeded"}
        raise AssertionError(f"{left}\n{replica.log.read_text()[-4000:]}") from None


def test_killed_at_random_moments_while_gangs_flow(bed: Bed, view: View, launch: Launch, kubelets: Kubelets) -> None:
    kubelets(bed, nodes=4, gpus=8)
    replica = launch(bed)
    chance = random.Random(7)
    turns = threading.Semaphore(0)
    with Watchman(view, 5) as watchman:
        coming = flow(bed, KILLS * GANGS_BETWEEN, 5, 0.05, turns)
        for _ in range(KILLS):
            turns.release(GANGS_BETWEEN)
            time.sleep(chance.uniform(0.1, 1.2))
            watchman.looks_away = True
            replica.kill()
            replica.start()
            watchman.looks_away = False
        coming.join()
        wait_until_done(view, replica, KILLS * GANGS_BETWEEN * 5)

    assert watchman.twice == []
    assert watchman.longest_s < GANG_TIMEOUT_S


def test_api_server_restarted_while_gangs_flow(bed: Bed, view: View, launch: Launch, kubelets: Kubelets) -> None:
    kubelets(bed, nodes=2, gpus=8)
    replica = launch(bed)
    coming = flow(bed, 10, 4, 0.2)
    time.sleep(1.0)
    bed.stop_api()
    time.sleep(1.0)
    bed.start_api()
    coming.join()

    wait_until_done(view, replica, 40)
    assert view.promised_twice() == []
    assert replica.process is not None
    assert replica.process.poll() is None


def test_gang_is_bound_whole_if_the_server_is_away_for_longer_than_its_timeout(
    bed: Bed, view: View, launch: Launch, kubelets: Kubelets, weather: BadWeather
) -> None:
    kubelets(bed, nodes=1, gpus=8)
    launch(bed, {"gang_timeout": "3s"}, kubeconfig=weather.kubeconfig)
    weather.delay_s = 1.0
    for value in gang("g", 4, 1):
        bed.admin.make(value)
    before = {name: each["metadata"]["uid"] for name, each in view.pods().items()}
    eventually(lambda: weather.binds == 4)

    bed.pause_api()
    time.sleep(5.0)
    bed.resume_api()
    weather.delay_s = 0.0

    eventually(lambda: all(each["status"]["phase"] == "Running" for each in view.pods().values()))
    assert {name: each["metadata"]["uid"] for name, each in view.pods().items()} == before
    assert not any("deletionTimestamp" in each["metadata"] for each in view.pods().values())


def test_api_server_that_refuses_at_random_and_is_slow(
    bed: Bed, view: View, launch: Launch, kubelets: Kubelets, weather: BadWeather
) -> None:
    kubelets(bed, nodes=2, gpus=8)
    replica = launch(bed, kubeconfig=weather.kubeconfig)
    weather.refuses, weather.delay_s = 0.3, 0.05
    with Watchman(view, 4) as watchman:
        coming = flow(bed, 25, 4, 0.1)
        coming.join()
        weather.delay_s = 0.5
        wait_until_done(view, replica, 100)

    assert weather.refused > 10
    assert watchman.twice == []
    assert watchman.longest_s < GANG_TIMEOUT_S + 5.0


def test_controller_is_asked_how_many_pods_it_makes_until_the_server_answers(
    bed: Bed, view: View, launch: Launch, kubelets: Kubelets, weather: BadWeather
) -> None:
    kubelets(bed, nodes=1, gpus=8)
    replica = launch(bed, {"settle": "0.1s"}, kubeconfig=weather.kubeconfig)
    owner = bed.admin.make(job("slow", 4, 1))
    pods = gang("slow", 4, 1)
    for value in pods:
        del value["metadata"]["labels"]
        meta = {name: owner["metadata"][name] for name in ("name", "uid")}
        value["metadata"]["ownerReferences"] = [
            {"apiVersion": "batch/v1", "kind": "Job", "controller": True, **meta},
        ]
    weather.refuses = 1.0
    for value in pods[:3]:
        bed.admin.make(value)
    eventually(lambda: weather.refused > 5)
    weather.refuses = 0.0
    bed.admin.make(pods[3])

    eventually(lambda: len(view.bound("slow")) == 4)
    assert {each["metadata"]["annotations"]["rota.dev/size"] for each in view.pods().values()} == {"4"}
    assert replica.process is not None
    assert replica.process.poll() is None


def test_watches_cut_and_expired(bed: Bed, view: View, launch: Launch, kubelets: Kubelets, weather: BadWeather) -> None:
    kubelets(bed, nodes=2, gpus=8)
    replica = launch(bed, kubeconfig=weather.kubeconfig)
    coming = flow(bed, 20, 4, 0.2)
    for turn in range(10):
        time.sleep(0.4)
        weather.expires = turn % 3 == 1
        weather.cut_watches()
    weather.expires = False
    coming.join()

    wait_until_done(view, replica, 80)
    assert view.promised_twice() == []


def test_pod_deleted_before_it_is_bound_is_waited_for_and_its_gang_is_whole_or_leaves(
    bed: Bed, view: View, launch: Launch, kubelets: Kubelets, weather: BadWeather
) -> None:
    kubelets(bed, nodes=1, gpus=8)
    launch(bed, {"gang_timeout": "3s"}, kubeconfig=weather.kubeconfig)
    weather.delay_s = 1.0
    pods = gang("g", 4, 1)
    for value in pods:
        bed.admin.make(value)
    time.sleep(1.5)  # the binds are on their way
    bed.admin.delete("/api/v1/namespaces/default/pods/g-3", {"gracePeriodSeconds": 0})
    weather.delay_s = 0.0

    eventually(lambda: view.bound("g") == {} and len(view.pods()) < 4, within_s=120)
    for value in pods:
        bed.admin.make(value)
    eventually(lambda: len(view.bound("g")) == 4)
    bed.admin.make(pod("after", 4))
    eventually(lambda: view.node_of("after"))


def leaders(bed: Bed) -> list[str]:
    """Pods to which Rota's Service sends requests."""
    found = bed.admin.items("/api/v1/namespaces/rota-system/pods?labelSelector=rota.dev/leads%3Dtrue")
    return [each["metadata"]["name"] for each in found]


@pytest.mark.parametrize("end", ["stopped", pytest.param("killed", marks=only_in_full)])
def test_two_replicas_take_turns(
    bed: Bed,
    view: View,
    tmp_path: Path,
    launch: Launch,
    kubelets: Kubelets,
    monkeypatch: pytest.MonkeyPatch,
    end: str,
) -> None:
    kubelets(bed, nodes=1)
    configure(bed)
    for name in ("first", "second"):
        bed.admin.make(pod(name, 0, namespace="rota-system", schedulerName="someone-else", nodeName="n1"))
    monkeypatch.setenv("POD_NAME", "first")
    first = launch(bed, options=["--port", "0"])
    monkeypatch.setenv("POD_NAME", "second")
    second = Replica(bed, tmp_path / "second", options=["--port", "0"])
    second.launch()
    assert leaders(bed) == ["first"]
    bed.admin.make(pod("before", 2))
    eventually(lambda: view.node_of("before"))
    try:
        if end == "stopped":
            assert first.stop() == 0
        else:
            first.kill()
        eventually(lambda: "rota schedules" in second.log.read_text(), within_s=60)
        bed.admin.make(pod("after", 2))
        eventually(lambda: view.node_of("after"))
        assert view.promised_twice() == []
        lease = bed.admin.get("/apis/coordination.k8s.io/v1/namespaces/rota-system/leases/rota")
        assert lease["spec"]["holderIdentity"] == "second"
        assert leaders(bed) == ["second"]
    finally:
        second.stop()
