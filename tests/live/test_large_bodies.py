"""Large submissions are parsed one after the other, and other requests are served in between."""

from __future__ import annotations

import asyncio
import json

import pytest

from rota.api import submit

LARGE = json.dumps({f"k{number}": 1 for number in range(10_000)}).encode()


def test_other_work_is_done_between_two_large_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def parse(body: bytes) -> object:
        order.append("parse")
        return json.loads(body)

    async def others(until: asyncio.Event) -> None:
        while not until.is_set():
            order.append("others")
            await asyncio.sleep(0)

    async def course() -> None:
        lock, done = asyncio.Lock(), asyncio.Event()
        beside = asyncio.create_task(others(done))
        found = await asyncio.gather(*(submit._parsed(LARGE, lock) for _ in range(5)))
        done.set()
        await beside
        assert found == [json.loads(LARGE)] * 5

    monkeypatch.setattr(submit, "parse_json", parse)
    asyncio.run(course())

    assert len(LARGE) > submit.LARGE_BODY
    assert order.count("parse") == 5
    assert "parse parse" not in " ".join(order)
