"""Sends what is in the outbox until it was delivered.

A message is noted as sent after its receiver has taken it. A manager that is killed in between sends it again, with the
same key: at least once, never lost. Receivers tell a repetition by the header
`Idempotency-Key`, or by the Message-ID of a mail.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rota.files.notify.settings import NotificationsPart
from rota.live.loop.control import Control
from rota.live.loop.entry import News
from rota.live.notify.delivery import NotDelivered, deliver
from rota.store import clock
from rota.store.accounts.outbox import FAILED, SENT, WAITING
from rota.store.records import Records

log = logging.getLogger("rota.live")
FIRST_S, MOST_S = 2.0, 3600.0
"""Between two attempts, doubled after each."""
GIVEN_UP_S = 3 * 86400.0
AT_ONCE = 50
MOST_CHANNELS = 8
"""To which messages are sent at the same time."""
MOST_REST_S = 60.0
"""How long a channel whose receiver can't be reached rests at most, before another message is tried."""
LOOK_S = 2.0
"""Between two looks without news of jobs: messages about budgets come without any."""


class Sender:
    """Delivers messages, those of each channel one after the other: a receiver that is away delays no other."""

    def __init__(self, control: Control, records: Records, settings: NotificationsPart) -> None:
        self._records = records
        self._settings = settings
        self._wake = asyncio.Event()
        self._threads = ThreadPoolExecutor(max_workers=MOST_CHANNELS, thread_name_prefix="sender")
        self._sending: dict[str, asyncio.Future[bool]] = {}
        self._rests: dict[str, tuple[int, float]] = {}
        """Channels whose receivers could not be reached: how often in a row, and until when they rest."""
        control.listen(self._noticed)

    def _noticed(self, news: Sequence[News]) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Send whatever is due, until cancelled."""
        while True:
            await self._look()
            await asyncio.sleep(0.1)  # what follows each other quickly is read together

    async def _look(self) -> None:
        """Hand on what is due to the channels that are free, and wait for news."""
        self._wake.clear()
        now_s = clock.now_s()
        for channel in [name for name, work in self._sending.items() if work.done()]:
            if self._sending.pop(channel).result():
                self._rests.pop(channel, None)
            else:
                times = self._rests.get(channel, (0, 0.0))[0]
                self._rests[channel] = times + 1, now_s + min(FIRST_S * 2.0**times, MOST_REST_S)
        away = {name for name, (_, until_s) in self._rests.items() if until_s > now_s}
        without = {*self._sending, *away}
        outbox = self._records.outbox
        by_channel: dict[str, list[Any]] = {}
        for row in await asyncio.to_thread(outbox.due, now_s, AT_ONCE, without):
            by_channel.setdefault(row.channel, []).append(row)
        for channel, rows in by_channel.items():
            work = asyncio.get_running_loop().run_in_executor(self._threads, self._send_some, rows)
            work.add_done_callback(lambda _: self._wake.set())
            self._sending[channel] = work
        due_s = await asyncio.to_thread(outbox.next_due_s, {*without, *by_channel})
        wait_s = LOOK_S if due_s is None else min(max(due_s - clock.now_s(), 0.0), LOOK_S)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), wait_s)

    def _send_some(self, rows: Sequence[Any]) -> bool:
        """Send messages of one channel, in a thread; return False if its receiver is away: what is left waits."""
        return all(self._send(row) for row in rows)

    def _send(self, row: Any) -> bool:
        """Try to deliver a message, and note how it went; return whether its receiver could be reached."""
        state, why, is_away = SENT, "", False
        try:
            deliver(self._settings, row.channel, row.owner, row.key, json.loads(row.body))
        except NotDelivered as error:
            is_over = error.is_final or clock.now_s() - row.created_s > GIVEN_UP_S
            state, why, is_away = (FAILED if is_over else WAITING), str(error), error.is_away
            log.warning("message-not-sent", extra={"message": row.key, "why": why, "tries": row.tries + 1})
        now_s = clock.now_s()
        due_s = now_s + min(FIRST_S * 2.0**row.tries, MOST_S)
        self._records.outbox.tried(row.n, state=state, why=why, due_s=due_s, at_s=now_s)
        return not is_away
