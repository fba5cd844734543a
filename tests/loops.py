"""A manager's loop in a test, with a driver of the test's own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from rota.drivers.local.driver import LocalDriver
from rota.live.loop.control import Control


@contextlib.asynccontextmanager
async def running(control: Control, driver: Any, within_s: float = 30.0) -> AsyncIterator[None]:
    """Run a loop for as long as the block, which must not take longer."""
    driver.control = control
    loop = asyncio.create_task(control.run(LocalDriver(driver, control.state, control.kept)))
    try:
        async with asyncio.timeout(within_s):
            yield
    finally:
        loop.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await loop
