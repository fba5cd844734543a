"""The states of alerts and the counts of events, as calculations."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rota.files.alerts.expression import Labels, parse_matchers
from rota.files.alerts.settings import AlertRule
from rota.live.alerts.event_counts import EventCounts, Happening, happenings
from rota.live.alerts.keeper import messages_of, shown_duration, shown_value
from rota.live.alerts.states import MOST_ALERTS, AlertBook, AlertNotice, AlertSilence, AlertState

NLP: Labels = (("tenant", "nlp"),)
VISION: Labels = (("tenant", "vision"),)


def rule(**values: Any) -> AlertRule:
    fixed = {"name": "long", "when": "rota_queue_wait_seconds > 1h", "message": "{tenant} waits {value}", "to": ["ops"]}
    return AlertRule.model_validate({**fixed, **values})


def told(notices: list[AlertNotice]) -> list[tuple[str, int]]:
    return [(notice.state.value, notice.number) for notice in notices]


def again(book: AlertBook) -> AlertBook:
    """The book as a manager that was killed finds it."""
    return AlertBook.decode(json.loads(json.dumps(book.encode())))


def test_an_alert_is_pending_fires_once_and_is_resolved_also_over_restarts() -> None:
    asks, book = rule(**{"for": "10m"}), AlertBook()

    assert book.judge(asks, {NLP: (4000.0, True), VISION: (1.0, False)}, 0.0) == []
    assert [alert.state for alert in book.alerts.values()] == [AlertState.PENDING]
    book = again(book)
    assert book.judge(asks, {NLP: (4300.0, True)}, 300.0) == []
    first = book.judge(asks, {NLP: (4600.0, True)}, 600.0)
    book = again(book)
    assert told(first) == [("firing", 1)]
    assert book.judge(asks, {NLP: (4700.0, True)}, 700.0) == []
    last = book.judge(asks, {NLP: (10.0, False)}, 800.0)
    assert told(last) == [("resolved", 1)]
    assert not book.alerts
    assert [alert.state for alert in book.resolved] == [AlertState.RESOLVED]


def test_what_holds_for_too_short_a_time_is_not_told() -> None:
    asks, book = rule(**{"for": "10m"}), AlertBook()
    for at_s, holds in ((0.0, True), (500.0, True), (550.0, False), (600.0, True), (1100.0, True)):
        assert book.judge(asks, {NLP: (1.0, holds)}, at_s) == []
    assert not book.resolved


def test_a_figure_that_is_not_measured_yet_after_a_start_resolves_nothing() -> None:
    asks, book = rule(), AlertBook()
    book.judge(asks, {NLP: (4000.0, True)}, 0.0)

    assert book.judge(asks, {}, 1.0, is_early=True) == []
    assert told(book.judge(asks, {}, 2.0)) == [("resolved", 1)]


def test_it_is_told_again_until_it_is_acknowledged() -> None:
    asks, book = rule(repeat="1h"), AlertBook()
    found = {NLP: (4000.0, True)}
    assert told(book.judge(asks, found, 0.0)) == [("firing", 1)]
    assert told(book.judge(asks, found, 3599.0)) == []
    assert told(book.judge(asks, found, 3600.0)) == [("firing", 2)]
    book.alerts["long", NLP].acknowledged_by = "ada"
    assert told(again(book).judge(asks, found, 99999.0)) == []


def test_a_silence_keeps_quiet_and_what_still_fires_is_told_after_it() -> None:
    silence = AlertSilence(id="s", rule="", matchers=parse_matchers('tenant="nlp"'), until_s=100.0, by="ada")
    asks, book = rule(), AlertBook(silences=[silence])
    found = {NLP: (4000.0, True), VISION: (4000.0, True)}

    assert [dict(each.alert.labels)["tenant"] for each in book.judge(asks, found, 0.0)] == ["vision"]
    assert again(book).silences == [silence]
    assert [dict(each.alert.labels)["tenant"] for each in book.judge(asks, found, 101.0)] == ["nlp"]


def test_what_a_silence_kept_quiet_ends_quietly() -> None:
    silence = AlertSilence(id="s", rule="long", matchers=(), until_s=100.0, by="ada")
    book = AlertBook(silences=[silence])
    book.judge(rule(), {NLP: (4000.0, True)}, 0.0)

    assert book.judge(rule(), {NLP: (1.0, False)}, 200.0) == []


def test_alerts_of_rules_that_are_gone_end_without_a_word_and_numbers_are_bounded() -> None:
    book = AlertBook()
    many: dict[Labels, tuple[float, bool]] = {
        (("tenant", f"t{number}"),): (4000.0, True) for number in range(MOST_ALERTS + 50)
    }
    assert len(book.judge(rule(), many, 0.0)) == MOST_ALERTS

    book.drop_rules(["other"], 1.0)

    assert not book.alerts
    assert len(book.resolved) == MOST_ALERTS


@given(
    st.lists(st.tuples(st.floats(1.0, 400.0), st.sampled_from(["holds", "not", "missing"]), st.booleans()), max_size=40)
)
def test_no_message_has_the_key_of_another_and_every_end_was_begun(looks: list[tuple[float, str, bool]]) -> None:
    asks, book, now_s = rule(**{"for": "5m", "repeat": "10m"}), AlertBook(), 0.0
    keys: list[str] = []
    fires = 0
    for wait_s, what, is_killed in looks:
        now_s += wait_s
        found = {} if what == "missing" else {NLP: (1.0, what == "holds")}
        for notice in book.judge(asks, found, now_s):
            keys += [row["key"] for row in messages_of(notice, now_s)]
            fires = notice.number if notice.state is AlertState.FIRING else 0
            assert notice.state is AlertState.FIRING or notice.number >= 1
        book = again(book) if is_killed else book
    assert len(keys) == len(set(keys))
    firing = [alert for alert in book.alerts.values() if alert.state is AlertState.FIRING]
    assert bool(firing) == bool(fires)


TITLES = {"1": ("bert", "nlp", "ada"), "2": ("vit", "vision", "bob")}
STEPS: list[dict[str, Any]] = [
    {"n": 1, "t": 10.0, "in": [{"event": "started", "job_id": "1", "rate": 1.0, "work_from_s": 10.0}]},
    {"n": 2, "t": 20.0, "in": [{"event": "interrupted", "job_id": "1", "work": 0.0, "retry_s": 30.0}]},
    {
        "n": 3,
        "t": 30.0,
        "in": [{"event": "node-lost", "node_id": "a1"}],
        "out": [{"order": "stop", "job_id": "2", "cause": "preempted"}],
    },
    {"n": 4, "t": 40.0, "in": [{"event": "ended", "job_id": "1", "end": "failed", "work": 0.0}, {"event": "timer"}]},
]


def test_events_of_the_journal_have_the_names_that_rules_give_them() -> None:
    found = happenings(STEPS, lambda ids: {job_id: TITLES[job_id] for job_id in ids})

    assert [(each.name, each.at_s) for each in found] == [
        ("job-started", 10.0),
        ("job-attempt-failed", 20.0),
        ("node-lost", 30.0),
        ("job-preempted", 30.0),
        ("job-failed", 40.0),
    ]
    assert dict(found[-1].labels) == {"job": "1", "name": "bert", "tenant": "nlp", "user": "ada"}


def test_events_are_counted_by_labels_within_the_time() -> None:
    asks = AlertRule.model_validate(
        {
            "name": "r",
            "event": 'job-failed{tenant!="test"}',
            "count": 2,
            "within": "1m",
            "by": ["tenant"],
            "message": "m",
        }
    )
    counts = EventCounts(step=0, entry=0)
    for at_s, tenant in ((0.0, "nlp"), (10.0, "vision"), (20.0, "nlp"), (30.0, "test")):
        labels = (("job", f"{at_s}"), ("name", "x"), ("tenant", tenant), ("user", "ada"))
        counts.add([asks], [Happening("job-failed", at_s, labels), Happening("job-started", at_s, labels)])
    counts = EventCounts.decode(json.loads(json.dumps(counts.encode())))

    assert counts.within(asks, 30.0) == {VISION: (1.0, False), NLP: (2.0, True)}
    assert counts.within(asks, 65.0) == {VISION: (1.0, False), NLP: (1.0, False)}
    assert counts.within(asks, 100.0) == {VISION: (0.0, False), NLP: (0.0, False)}
    assert counts.within(asks, 100.0) == {}


def test_values_are_written_in_their_unit() -> None:
    assert shown_value(rule(), 4000.0) == "1 h 6 min"
    assert shown_value(rule(when="rota_disk_free_ratio < 10%", message="m"), 0.0312) == "3.12%"
    assert shown_value(rule(when="sum(rota_jobs) > 1", message="m"), 3.0) == "3"
    assert [shown_duration(seconds) for seconds in (0.2, 59, 86400, 90061)] == ["0 s", "59 s", "1 d", "1 d 1 h"]
