"""What runs beside the loop of a manager: a part that fails is named in the log, and the others go on."""

from __future__ import annotations

import asyncio
import logging

import pytest

from rota.live.loop.storage import in_background


def test_part_that_fails_is_logged_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    async def breaks() -> None:
        raise ValueError("a sensor that is not there")

    async def goes_on() -> None:
        await asyncio.Event().wait()

    async def course() -> bool:
        broken, other = in_background(breaks()), in_background(goes_on())
        await asyncio.wait([broken])
        await asyncio.sleep(0)
        ran = not other.done()
        other.cancel()
        await asyncio.wait([other])
        return ran

    with caplog.at_level(logging.ERROR, "rota.live"):
        assert asyncio.run(course())

    (record,) = caplog.records
    assert record.__dict__["why"] == "a sensor that is not there"
    assert record.__dict__["part"].endswith("breaks")
