"""Which messages are written, and the order in which they are sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.live.notify.job_notices import message
from rota.store.accounts.outbox import HOUR_S, MOST_AN_HOUR, SENT, OutboxRecords, write_messages
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


def test_channels_take_turns_and_can_be_left_out(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'rota.db'}")
    rows = [message(f"job/{number}/end", "dead", "nlp", "ada", "t", "t") for number in range(3)]
    with engine.begin() as connection:
        write_messages(connection, [*rows, message("job/9/end", "mail", "nlp", "ada", "t", "t")])
    outbox = OutboxRecords(engine)

    assert [row.channel for row in outbox.due(1e18, 3)] == ["dead", "mail", "dead"]
    assert [row.channel for row in outbox.due(1e18, 9, {"dead"})] == ["mail"]
    assert outbox.next_due_s({"dead", "mail"}) is None
    engine.dispose()


@pytest.mark.attack(
    "sends a team's channel one message for each of ten thousand jobs",
    stopped_by="a user has a number of messages an hour on a channel, and one says how many were left out",
)
@settings(max_examples=15, deadline=None)
@given(sizes=st.lists(st.integers(1, 2 * MOST_AN_HOUR), min_size=1, max_size=6), hour=st.integers(0, 10**6))
def test_messages_of_a_user_are_bounded_by_the_hour(sizes: list[int], hour: int) -> None:
    engine = open_database("sqlite://")
    at_s = hour * HOUR_S + 7.0
    numbers = iter(range(10**6))
    for size in sizes:
        own = [_row(f"job/{next(numbers)}/end", "team", "eve", at_s) for _ in range(size)]
        beside = [_row(f"job/{own[0]['key']}", "mail", "eve", at_s), _row(f"budget/{own[0]['key']}", "team", "", at_s)]
        with engine.begin() as connection:
            write_messages(connection, [*own, *beside, _row(f"later/{own[0]['key']}", "team", "eve", at_s + HOUR_S)])
    found = OutboxRecords(engine).due(1e18, 10**6)

    now = [row for row in found if (row.owner, row.channel) == ("eve", "team") and row.created_s == at_s]
    left_out = [json.loads(row.body)["count"] for row in now if row.key.startswith("left-out/")]
    assert len(now) - len(left_out) == min(sum(sizes), MOST_AN_HOUR)
    assert sum(left_out) == max(sum(sizes) - MOST_AN_HOUR, 0)
    assert len(left_out) <= 1
    assert all(row.due_s == (hour + 1) * HOUR_S for row in now if row.key.startswith("left-out/"))
    assert len(found) - len(now) == 3 * len(sizes)  # other channels, the cluster's messages and the next hour
    engine.dispose()


def _row(key: str, channel: str, owner: str, at_s: float) -> dict[str, Any]:
    return {**message(key, channel, "nlp", owner, "t", "t"), "created_s": at_s}
