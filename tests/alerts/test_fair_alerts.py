"""Alerts about one user's many jobs leave room for those about others'."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.files.alerts.expression import Labels
from rota.files.alerts.settings import AlertRule
from rota.live.alerts import event_counts
from rota.live.alerts.event_counts import EventCounts, Happening
from rota.live.alerts.states import MOST_ALERTS, AlertBook, owner_of

attack = pytest.mark.attack
WAITS = AlertRule.model_validate({"name": "w", "when": "job_wait_seconds > 1h", "for": "5m", "message": "{job}"})
FAILS = AlertRule.model_validate({"name": "f", "event": "job-attempt-failed", "count": 3, "message": "{job}"})


def job(user: str, number: int) -> Labels:
    return (("job", f"{user}{number}"), ("name", "n"), ("tenant", "vision" if user == "eve" else "nlp"), ("user", user))


@attack(
    "has so many jobs in trouble that alerts about others' have no room",
    stopped_by="the user with the most alerts of a rule makes way for others",
)
@settings(max_examples=30, deadline=None)
@given(looks=st.lists(st.dictionaries(st.sampled_from(["eve", "ada", "bob"]), st.integers(0, 300)), max_size=5))
def test_alerts_are_shared_among_users(looks: list[dict[str, int]]) -> None:
    book = AlertBook()
    for at, sizes in enumerate([*looks, {"eve": 3 * MOST_ALERTS, "ada": 5, "bob": 1}]):
        found = {job(user, number): (1.0, True) for user, size in sizes.items() for number in range(size)}
        for _ in range(2):  # what ends leaves its room to the next look
            book.judge(WAITS, found, 200.0 * at)
        held = Counter(owner_of(labels)[1] for _, labels in book.alerts)
        assert held.total() == min(len(found), MOST_ALERTS)
        left_out = [user for user, size in sizes.items() if held[user] < size]
        assert all(held[user] + 1 >= max(held.values()) for user in left_out)
    assert (held["ada"], held["bob"]) == (5, 1)


@attack(
    "has a thousand jobs fail so that the failures of another's are forgotten",
    stopped_by="the user with the most counted jobs makes way for others",
)
def test_counts_of_events_are_shared_among_users() -> None:
    counts = EventCounts()
    failed = [Happening("job-attempt-failed", 1.0, job("ada", 1))]
    flood = [Happening("job-attempt-failed", 1.0, job("eve", number)) for number in range(event_counts.MOST_GROUPS)]
    for _ in range(3):
        counts.add([FAILS], [*failed, *flood])

    assert counts.within(FAILS, 2.0)[job("ada", 1)] == (3.0, True)
    assert len(counts.moments["f"]) == event_counts.MOST_GROUPS
