"""Keeps the head of the audit log in a file outside of the database, so that a cut-off end is found."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from rota.store.audit import AuditHead, AuditLog, head_in, write_head

log = logging.getLogger("rota.api")
EVERY_S = 5.0
FILE = "audit-head"


class AuditAnchor:
    """Notes the head in a file, as long as the log contains the head that was noted before."""

    def __init__(self, audit: AuditLog, home: Path) -> None:
        self._audit = audit
        self.path = home / FILE
        self._noted: AuditHead | None = None
        self._is_broken = False

    def advance(self) -> None:
        """Note the present head; a log that lacks the head noted before is reported, and its note is kept."""
        if self._is_broken:
            return
        head = self._audit.head()
        if head == self._noted:
            return
        before = self._noted or head_in(self.path)
        if before is not None and not self._audit.contains(before):
            self._is_broken = True
            log.error("the audit log lacks an entry that was noted", extra={"entry": before.n, "file": str(self.path)})
            return
        write_head(self.path, head)
        self._noted = head

    async def run(self) -> None:
        """Note the head until cancelled, and once more then."""
        try:
            while True:
                await self._try()
                await asyncio.sleep(EVERY_S)
        finally:
            await asyncio.shield(self._try())

    async def _try(self) -> None:
        try:
            await asyncio.to_thread(self.advance)
        except (OSError, SQLAlchemyError) as error:
            log.warning("the head of the audit log can't be noted", extra={"error": str(error)})
