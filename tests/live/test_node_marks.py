"""Marks on node objects: an API server that refuses or does not answer delays them, and ends nothing."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

import pytest

from rota.core.errors import RotaError, Unavailable
from rota.drivers.kubernetes.api.client import Api, ApiRefused, MissingRight, Unreachable
from rota.live.health import node_marks
from rota.live.health.node_marks import NodeMarks


class NodeServer:
    """An API server with one node, whose first answers are failures."""

    def __init__(self, failures: list[Exception]) -> None:
        self._failures = failures
        self.taints: list[Any] = []

    async def get(self, path: str) -> Any:
        return {"metadata": {"resourceVersion": "7"}, "spec": {"taints": self.taints}}

    async def patch(self, path: str, body: Any, kind: str) -> None:
        if path.endswith("/status"):
            return
        if self._failures:
            raise self._failures.pop(0)
        self.taints = body["spec"]["taints"]


@pytest.mark.parametrize(
    "failure",
    [
        ApiRefused(409, "Conflict", "the object has been modified"),
        ApiRefused(404, "NotFound", "there is no such node"),
        ApiRefused(500, "InternalError", "etcd"),
        Unreachable("nobody answers"),
        MissingRight("a right is missing"),
    ],
    ids=lambda error: f"{type(error).__name__}-{getattr(error, 'status', '')}",
)
def test_node_that_could_not_be_marked_is_tried_again(
    failure: RotaError | Unavailable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_marks, "LOOK_S", 0.0)
    server = NodeServer([failure, failure])

    async def course() -> None:
        marks = NodeMarks(cast(Api, server), dict, lambda node: None)
        marks.suspect("n1", "jobs fail")
        working = asyncio.create_task(marks.run())
        while not server.taints and not working.done():
            await asyncio.sleep(0)
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working

    asyncio.run(course())
    assert [each["key"] for each in server.taints] == ["rota.dev/health"]
