"""Follows one kind of object: list, then watch; list again when the resource version has expired."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

from rota.drivers.kubernetes.api.client import Api, ApiRefused, Unreachable

log = logging.getLogger("rota.drivers.kubernetes")
Json = dict[str, Any]
SHORTEST_S = 0.05
LONGEST_S = 5.0
_GONE = 410


class Informer:
    """One collection. `replace` receives all objects at once, `change` the later changes in order."""

    def __init__(
        self,
        api: Api,
        path: str,
        replace: Callable[[list[Json]], None],
        change: Callable[[list[Json]], None],
        **params: str | int,
    ) -> None:
        self._api = api
        self._path = path
        self._replace = replace
        self._change = change
        self._params = params
        self._version = ""
        self.relists = 0
        """Number of relists."""

    async def begin(self) -> None:
        """List for the first time; raises on failure."""
        items, self._version = await self._api.everything(self._path, **self._params)
        self._replace(items)

    async def run(self) -> None:
        """Follow changes until cancelled; call after `begin`."""
        pause_s = SHORTEST_S
        while True:
            try:
                if not self._version:
                    self.relists += 1
                    await self.begin()
                await self._follow()
                pause_s = SHORTEST_S
            except ApiRefused as error:
                if error.status == _GONE:
                    self._version = ""
                elif not error.is_passing:
                    raise
                pause_s = await self._pause(pause_s, str(error))
            except Unreachable as error:
                pause_s = await self._pause(pause_s, str(error))

    async def _follow(self) -> None:
        async for changes in self._api.watch(self._path, self._version, **self._params):
            self._version = str(changes[-1]["object"]["metadata"]["resourceVersion"])
            news = [change for change in changes if change["type"] != "BOOKMARK"]
            if news:
                self._change(news)

    async def _pause(self, pause_s: float, why: str) -> float:
        """Sleep before a retry; return the next, longer pause."""
        log.warning("watch interrupted", extra={"path": self._path, "why": why})
        await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))
        return min(pause_s * 2, LONGEST_S)
