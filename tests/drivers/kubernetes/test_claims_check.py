"""The check of claims: what lasts is repaired, what passes is not, and a long list is read little by little."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from drivers.kubernetes.objects import pod_object
from rota.drivers.kubernetes.api.client import Api, ApiRefused
from rota.drivers.kubernetes.driver import KubernetesDriver
from rota.drivers.kubernetes.gangs import claims_check
from rota.drivers.kubernetes.gangs.claims_check import ClaimsCheck, RepairCount
from rota.drivers.kubernetes.gangs.context import EventSink
from rota.drivers.kubernetes.objects.pods import pod_of
from rota.drivers.kubernetes.settings import ClusterSettings

Json = dict[str, Any]
SETTINGS = ClusterSettings()
PAGE = 2


class Server:
    """An API server with pods. `meanwhile` is called after each page, since a list takes time."""

    def __init__(self, *pods: Json) -> None:
        self.pods = list(pods)
        self.pages_at_s: list[float] = []
        self.meanwhile: Callable[[], None] = lambda: None

    async def pages(self, path: str, size: int, **params: str) -> AsyncIterator[list[Json]]:
        assert params == {"fieldSelector": "spec.schedulerName=rota"}
        now = list(self.pods)
        for first in range(0, max(len(now), 1), size):
            self.pages_at_s.append(time.monotonic())
            yield now[first : first + size]
            self.meanwhile()

    async def get(self, path: str) -> Json:
        found = [pod for pod in self.pods if path == f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"]
        if not found:
            raise ApiRefused(404, "NotFound", "there is no such pod")
        return found[0]

    async def patiently(self, method: str, path: str, body: None, *, within_s: float) -> Json:
        return await self.get(path)


class Busy:
    """An engine that still has events to take in."""

    is_settled = False


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims_check, "AGAIN_S", 0.0)
    monkeypatch.setattr(claims_check, "PAGE", PAGE)


def checked(server: Server, known: list[Json], meanwhile: Callable[[KubernetesDriver], None] | None = None) -> Any:
    """The names of pods that the driver knows after one check, and how many repairs were counted."""

    async def run() -> tuple[set[str], int]:
        driver = KubernetesDriver(cast(Api, server), SETTINGS)
        driver.pods_listed(known)
        driver._context.sink = cast(EventSink, Busy())
        if meanwhile is not None:
            server.meanwhile = lambda: meanwhile(driver)
        count = RepairCount()
        driver._context.flush = lambda: None
        await ClaimsCheck(driver._context, count).check()
        return {pod.name for pod in driver.gang_index.pods.values()}, count.repairs

    return asyncio.run(run())


def pods(*names: str) -> list[Json]:
    return [pod_object(name) for name in names]


@pytest.mark.parametrize(
    ("there", "known", "after", "repairs"),
    [
        pytest.param("abcde", "abcde", "abcde", 0, id="all known"),
        pytest.param("abde", "abcde", "abde", 1, id="one is gone"),
        pytest.param("abcde", "ae", "abcde", 3, id="three were never seen"),
        pytest.param("", "ab", "", 2, id="none is left"),
    ],
)
def test_claims_become_what_the_server_has(there: str, known: str, after: str, repairs: int) -> None:
    assert checked(Server(*pods(*there)), pods(*known)) == (set(after), repairs)


def test_pod_that_was_replaced_by_one_of_its_name_is_gone() -> None:
    server = Server(pod_object("a", uid="second"))
    assert checked(server, [pod_object("a", uid="first")]) == ({"a"}, 2)


def test_bind_that_was_never_seen_is_repaired() -> None:
    assert checked(Server(pod_object("a", spec={"nodeName": "n1"})), pods("a")) == ({"a"}, 1)


def test_pod_that_makes_no_sense_is_known_as_such() -> None:
    strange = pod_object("strange", spec={"nodeName": "n1", "terminationGracePeriodSeconds": 1 << 40})
    assert checked(Server(strange), []) == ({"strange"}, 1)


def test_watch_that_is_late_is_no_difference() -> None:
    """Pods that come, are bound and go while a long list is read: the watch tells of all of them in the end."""
    server = Server(*pods("a", "b", "c", "d", "e"))

    def meanwhile(driver: KubernetesDriver) -> None:
        bound = pod_object("d", spec={"nodeName": "n1"})
        server.pods = [*pods("a", "c", "e"), bound, pod_object("new")]
        driver.gang_index.gone("uid-of-b")
        for value in (bound, pod_object("new")):
            driver.gang_index.see(pod_of(value, SETTINGS))

    late = [*pods("a", "b", "c", "d", "e"), pod_object("left")]
    known, repairs = checked(server, late, meanwhile)
    assert known == {"a", "c", "d", "e", "new"}
    assert repairs == 1, "only the pod that the watch never told of is repaired"


def test_long_list_is_read_little_by_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims_check, "LIST_S", 0.6)
    monkeypatch.setattr(claims_check, "SHARE", 1e-6)
    server = Server(*pods(*"abcdef"))
    assert checked(server, pods(*"abcdef")) == (set("abcdef"), 0)
    first, second, third = server.pages_at_s
    assert min(second - first, third - second) > 0.19
    assert third - first < 2.0
