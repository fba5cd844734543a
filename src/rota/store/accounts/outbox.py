"""The table of messages to be sent: written with what they tell of, and kept until they were delivered."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, Engine, Row, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from rota.store.schema import outbox

Json = dict[str, Any]
WAITING, SENT, FAILED = "waiting", "sent", "failed"
MOST_AN_HOUR = 200
"""Messages about one user's jobs in an hour on one channel; one more says how many there would have been."""
HOUR_S = 3600.0
MOST_LOOKED_AT = 50_000
"""The latest messages, of which those of this hour are counted."""


def write_messages(connection: Connection, rows: Sequence[Json]) -> None:
    """Add messages, as part of a transaction; one whose key is there is left out."""
    by_receiver: dict[tuple[str, str, float], list[Json]] = defaultdict(list)
    for row in rows:
        by_receiver[row["owner"], row["channel"], row["created_s"] // HOUR_S].append(row)
    for (owner, channel, hour), own in by_receiver.items():
        room = len(own)
        if owner:  # what has none is about the whole cluster
            room = max(MOST_AN_HOUR - _written(connection, owner, channel, hour * HOUR_S), 0)
        if own[:room]:
            _insert(connection, own[:room])
        if own[room:]:
            _summarise(connection, own[room:], hour)


def _insert(connection: Connection, rows: list[Json]) -> None:
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    connection.execute(dialect.insert(outbox).on_conflict_do_nothing(index_elements=["key"]), rows)


def _written(connection: Connection, owner: str, channel: str, since_s: float) -> int:
    """Return how many messages a user has on a channel in the hour since a moment."""
    last = select(func.max(outbox.c.n)).scalar_subquery()
    is_new = outbox.c.created_s.between(since_s, since_s + HOUR_S)
    own = (outbox.c.owner == owner, outbox.c.channel == channel, is_new)
    wanted = select(func.count()).where(outbox.c.n > last - MOST_LOOKED_AT, *own)
    return int(connection.execute(wanted).scalar() or 0)


def _summarise(connection: Connection, rows: list[Json], hour: float) -> None:
    """Count messages that are left out in one that is sent when the hour is over."""
    first = rows[0]
    key = f"left-out/{hour:.0f}/{first['channel']}/{first['owner']}"[:256]
    before = connection.execute(select(outbox.c.body).where(outbox.c.key == key)).scalar()
    count = len(rows) + (0 if before is None else int(json.loads(before)["count"]))
    text = f"{count} more messages about jobs of {first['owner']} were left out: {MOST_AN_HOUR} an hour are sent."
    about = {name: value for name, value in json.loads(first["body"]).items() if name in ("tenant", "user", "at_s")}
    body = json.dumps({**about, "title": "Messages were left out", "text": text, "event": "left-out", "count": count})
    if before is None:
        _insert(connection, [{**first, "key": key, "body": body, "due_s": (hour + 1) * HOUR_S}])
    else:
        connection.execute(update(outbox).where(outbox.c.key == key).values(body=body))


class OutboxRecords:
    """The messages in the database, from any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def due(self, now_s: float, limit: int, without: Collection[str] = ()) -> list[Row[Any]]:
        """Return messages to be sent now, `without` those of some channels.

        The oldest of each owner on each channel comes before the second oldest of any.
        """
        receiver = (outbox.c.channel, outbox.c.owner)
        place = func.row_number().over(partition_by=receiver, order_by=outbox.c.n).label("place")
        is_due = (outbox.c.state == WAITING, outbox.c.due_s <= now_s, outbox.c.channel.not_in(sorted(without)))
        waiting = select(outbox.c.n, place).where(*is_due).subquery("waiting")
        wanted = select(outbox).join(waiting, outbox.c.n == waiting.c.n).order_by(waiting.c.place, outbox.c.n)
        with self._engine.connect() as connection:
            return list(connection.execute(wanted.limit(limit)).all())

    def next_due_s(self, without: Collection[str] = ()) -> float | None:
        """Return when the next message is to be sent, `without` those of some channels; None if none waits."""
        is_waiting = (outbox.c.state == WAITING, outbox.c.channel.not_in(sorted(without)))
        with self._engine.connect() as connection:
            found = connection.execute(select(func.min(outbox.c.due_s)).where(*is_waiting)).scalar()
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
