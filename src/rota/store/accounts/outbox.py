"""The table of messages to be sent: written with what they tell of, and kept until they were delivered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Engine, Row, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from rota.store.schema import outbox

Json = dict[str, Any]
WAITING, SENT, FAILED = "waiting", "sent", "failed"


def write_messages(connection: Connection, rows: Sequence[Json]) -> None:
    """Add messages, as part of a transaction; one whose key is there is left out."""
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    connection.execute(dialect.insert(outbox).on_conflict_do_nothing(index_elements=["key"]), list(rows))


class OutboxRecords:
    """The messages in the database, from any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def due(self, now_s: float, limit: int) -> list[Row[Any]]:
        """Return messages to be sent now: the oldest of each owner before the second oldest of any."""
        place = func.row_number().over(partition_by=outbox.c.owner, order_by=outbox.c.n).label("place")
        waiting = (
            select(outbox.c.n, place).where(outbox.c.state == WAITING, outbox.c.due_s <= now_s).subquery("waiting")
        )
        wanted = select(outbox).join(waiting, outbox.c.n == waiting.c.n).order_by(waiting.c.place, outbox.c.n)
        with self._engine.connect() as connection:
            return list(connection.execute(wanted.limit(limit)).all())

    def next_due_s(self) -> float | None:
        """Return when the next message is to be sent; None if none waits."""
        with self._engine.connect() as connection:
            found = connection.execute(select(func.min(outbox.c.due_s)).where(outbox.c.state == WAITING)).scalar()
        return None if found is None else float(found)

    def counts(self) -> dict[str, int]:
        """Return how many messages there are by state."""
        wanted = select(outbox.c.state, func.count()).group_by(outbox.c.state)
        with self._engine.connect() as connection:
            found = {str(state): int(count) for state, count in connection.execute(wanted).all()}
        return {state: found.get(state, 0) for state in (WAITING, SENT, FAILED)}

    def tried(self, number: int, *, state: str, why: str, due_s: float, at_s: float) -> None:
        """Note an attempt to send a message."""
        changed = {"state": state, "why": why, "due_s": due_s, "tried_s": at_s, "tries": outbox.c.tries + 1}
        with self._engine.begin() as connection:
            connection.execute(update(outbox).where(outbox.c.n == number).values(**changed))

    def drop_before(self, at_s: float) -> None:
        """Delete messages that were sent, or given up, before a moment."""
        with self._engine.begin() as connection:
            connection.execute(delete(outbox).where(outbox.c.state != WAITING, outbox.c.tried_s < at_s))
