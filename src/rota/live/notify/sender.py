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
LOOK_S = 2.0
"""Between two looks without news of jobs: messages about budgets come without any."""


class Sender:
    """Delivers messages one after the other, oldest first."""

    def __init__(self, control: Control, records: Records, settings: NotificationsPart) -> None:
        self._records = records
        self._settings = settings
        self._wake = asyncio.Event()
        control.listen(self._noticed)

    def _noticed(self, news: Sequence[News]) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Send whatever is due, until cancelled."""
        while True:
            self._wake.clear()
            for row in await asyncio.to_thread(self._records.outbox.due, clock.now_s(), AT_ONCE):
                await asyncio.to_thread(self._send, row)
            due_s = await asyncio.to_thread(self._records.outbox.next_due_s)
            wait_s = LOOK_S if due_s is None else min(max(due_s - clock.now_s(), 0.0), LOOK_S)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), wait_s)
            await asyncio.sleep(0.1)  # what follows each other quickly is read together

    def _send(self, row: Any) -> None:
        state, why = SENT, ""
        try:
            deliver(self._settings, row.channel, row.owner, row.key, json.loads(row.body))
        except NotDelivered as error:
            is_over = error.is_final or clock.now_s() - row.created_s > GIVEN_UP_S
            state, why = (FAILED if is_over else WAITING), str(error)
            log.warning("message-not-sent", extra={"message": row.key, "why": why, "tries": row.tries + 1})
        now_s = clock.now_s()
        due_s = now_s + min(FIRST_S * 2.0**row.tries, MOST_S)
        self._records.outbox.tried(row.n, state=state, why=why, due_s=due_s, at_s=now_s)
