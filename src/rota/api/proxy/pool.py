"""Connections to jobs that are kept for the next request, and how many one place may have."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path

import h11

from rota.api.proxy.places import ProxyPlace
from rota.api.proxy.stream import JobStream

MOST_CONNECTIONS = 48
"""To one place at once, WebSockets included: a task has at most 128 sessions."""
MOST_IDLE = 8
IDLE_S = 20.0
WAIT_S = 30.0
Key = tuple[Path, ProxyPlace]


class TooBusy(Exception):
    """All connections of a place are in use."""


@dataclass(slots=True, eq=False)
class JobConnection:
    """A connection with the state of its HTTP."""

    stream: JobStream
    http: h11.Connection = field(default_factory=lambda: h11.Connection(h11.CLIENT, 64 << 10))
    is_reused: bool = False
    idle_since_s: float = 0.0


@dataclass(slots=True)
class PooledPlace:
    """The connections to one place."""

    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_CONNECTIONS))
    idle: list[JobConnection] = field(default_factory=list)
    users: int = 0


class ConnectionPool:
    """The connections to all places."""

    def __init__(self) -> None:
        self._places: dict[Key, PooledPlace] = {}

    async def take(self, key: Key, *, fresh: bool = False) -> JobConnection:
        """Return a connection; raises `NoConnection`, or `TooBusy` if none becomes free for long."""
        place = self._places.setdefault(key, PooledPlace())
        place.users += 1
        try:
            await asyncio.wait_for(place.slots.acquire(), WAIT_S)
        except TimeoutError:
            self._leave(key, place)
            raise TooBusy from None
        try:
            while place.idle and not fresh:
                kept = place.idle.pop()
                if time.monotonic() - kept.idle_since_s < IDLE_S and await kept.stream.is_quiet():
                    kept.is_reused = True
                    return kept
                kept.stream.close()
            return JobConnection(await JobStream.open(key[0], key[1].order))
        except BaseException:
            place.slots.release()
            self._leave(key, place)
            raise

    def give_back(self, key: Key, connection: JobConnection) -> None:
        """Keep a connection for the next request if it can have one; close it otherwise."""
        place = self._places[key]
        http = connection.http
        is_done = http.our_state is h11.DONE and http.their_state is h11.DONE
        if is_done and not http.trailing_data[0] and len(place.idle) < MOST_IDLE:  # what follows answers no request
            http.start_next_cycle()
            connection.idle_since_s = time.monotonic()
            place.idle.append(connection)
            asyncio.get_running_loop().call_later(IDLE_S + 1, self._close_old, key)
        else:
            connection.stream.close()
        place.slots.release()
        self._leave(key, place)

    def discard(self, key: Key, connection: JobConnection) -> None:
        """Close a connection that can't have another request."""
        place = self._places[key]
        connection.stream.close()
        place.slots.release()
        self._leave(key, place)

    def _leave(self, key: Key, place: PooledPlace) -> None:
        place.users -= 1
        if not place.users and not place.idle:
            self._places.pop(key, None)

    def _close_old(self, key: Key) -> None:
        place = self._places.get(key)
        if place is None:
            return
        oldest_s = time.monotonic() - IDLE_S
        for old in [each for each in place.idle if each.idle_since_s <= oldest_s]:
            place.idle.remove(old)
            old.stream.close()
        if not place.users and not place.idle:
            self._places.pop(key, None)
