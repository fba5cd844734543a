"""The order in which waiting messages are sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.live.notify.job_notices import message
from rota.store.accounts.outbox import SENT, OutboxRecords, write_messages
from rota.store.database import open_database


@pytest.mark.attack(
    "has messages about ten thousand jobs sent before those of others",
    stopped_by="messages are sent in rotation among owners",
)
def test_flood_of_messages_does_not_delay_those_of_others(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'rota.db'}")
    flood = [message(f"job/{number}/end", "mail", "nlp", "eve", "t", "t") for number in range(300)]
    others = [message(f"job/{owner}/end", "mail", "nlp", owner, "t", "t") for owner in ("ada", "bob")]
    with engine.begin() as connection:
        write_messages(connection, [*flood, *others])
    outbox = OutboxRecords(engine)

    first = outbox.due(1e18, 4)
    assert [row.owner for row in first] == ["eve", "ada", "bob", "eve"]
    for row in first:
        outbox.tried(row.n, state=SENT, why="", due_s=0.0, at_s=0.0)

    assert [row.key for row in outbox.due(1e18, 2)] == ["job/2/end/mail", "job/3/end/mail"]
    engine.dispose()
