"""Evictions that the API server, or a policy or a webhook of the cluster, refuses: they wait, and Rota goes on."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from drivers.kubernetes.objects import pod_object
from rota.drivers.kubernetes.api.client import Api, ApiRefused, MissingRight, Unreachable, _from_status
from rota.drivers.kubernetes.gangs import binder as binding
from rota.drivers.kubernetes.gangs.binder import Binder
from rota.drivers.kubernetes.objects.pods import pod_of
from rota.drivers.kubernetes.settings import ClusterSettings

Json = dict[str, Any]
POD = pod_of(pod_object("p", spec={"nodeName": "n1"}), ClusterSettings())
OTHER_VERSION = ApiRefused(400, "BadRequest", 'no kind "Eviction" is registered for version "policy/v1"')
REFUSALS = [
    ApiRefused(400, "BadRequest", "denied by a webhook"),
    ApiRefused(403, "Forbidden", "admission webhook denied the request: it cannot be evicted"),
    ApiRefused(413, "RequestEntityTooLarge", "policy"),
    ApiRefused(422, "Invalid", "policy"),
    ApiRefused(429, "TooManyRequests", "budget"),
    ApiRefused(500, "InternalError", "failed calling webhook"),
    Unreachable("nobody answers"),
]


class Refusing:
    """An API server with one pod that refuses to let it go for a while; it takes no Events either."""

    def __init__(self, *refusals: Exception) -> None:
        self._refusals = [each for each in refusals for _ in range(2)]
        self.asked: list[tuple[str, str]] = []
        self._questions = 0

    async def patiently(self, method: str, path: str, body: Any, *, within_s: float) -> Any:
        if method == "GET":
            self._questions += 1
            if self._questions % 2:
                raise Unreachable("nobody answers")
            return {"metadata": {"uid": POD.uid}, "spec": {}}
        self.asked.append((method, str(body["apiVersion"])))
        if self._refusals:
            raise self._refusals.pop(0)
        return None

    async def post(self, path: str, body: Any) -> Any:
        raise ApiRefused(500, "InternalError", "no Events")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AGAIN_S", "BUDGET_S"):
        monkeypatch.setattr(binding, name, 0.0)


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda each: f"{type(each).__name__}-{getattr(each, 'status', '')}")
def test_refused_eviction_is_tried_again_as_an_eviction(refusal: Exception) -> None:
    server = Refusing(refusal)
    asyncio.run(Binder(cast(Api, server)).evict(POD))
    assert server.asked == [("POST", "policy/v1")] * 3


def test_server_of_another_version_is_asked_in_that() -> None:
    server = Refusing()
    server._refusals = [OTHER_VERSION]
    asyncio.run(Binder(cast(Api, server)).evict(POD))
    assert server.asked == [("POST", "policy/v1"), ("POST", "policy/v1beta1")]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda each: f"{type(each).__name__}-{getattr(each, 'status', '')}")
def test_refused_deletion_is_tried_again(refusal: Exception) -> None:
    server = Refusing(refusal)
    asyncio.run(Binder(cast(Api, server)).delete(POD))
    assert server.asked == [("DELETE", "v1")] * 3


@pytest.mark.parametrize(
    ("message", "is_right"),
    [
        ('pods "p" is forbidden: User "rota" cannot create resource "pods/eviction" in API group ""', True),
        ('User "system:serviceaccount:x:rota" cannot list resource "nodes" in API group "" at the cluster scope', True),
        ('forbidden: User "rota" cannot get path "/metrics"', True),
        ('admission webhook "x" denied the request: a pod that trains cannot be evicted', False),
        ("this namespace cannot be changed", False),
    ],
)
def test_only_the_words_of_the_server_name_a_missing_right(message: str, is_right: bool) -> None:
    assert isinstance(_from_status(403, {"message": message}, None, "POST"), MissingRight) is is_right
