"""States of a node's health: hysteresis, severe signs, repair."""

from __future__ import annotations

import pytest

from rota.health.node_state import HealthSign, NodeHealth, NodeHealthState, Severity, decode_health
from rota.health.xid import XidAction, action_for, severity_of

S = NodeHealthState


def after(*severities: Severity, start: NodeHealth | None = None, is_empty: bool = False) -> NodeHealth:
    health = start or NodeHealth()
    for at, severity in enumerate(severities):
        health = health.after(HealthSign(at_s=float(at), source="t", severity=severity, text="x"), is_empty=is_empty)
    return health


G, W, X = Severity.GOOD, Severity.WARNING, Severity.SEVERE


@pytest.mark.parametrize(
    ("signs", "state"),
    [
        ((G, G), S.HEALTHY),
        ((W,), S.SUSPECT),
        ((W, G, G), S.SUSPECT),
        ((W, G, G, G), S.HEALTHY),
        ((W, G, W, G, W), S.DRAINING),
        ((X,), S.DRAINING),
        ((X, G, G, G, G), S.DRAINING),
    ],
)
def test_state_after_signs(signs: tuple[Severity, ...], state: NodeHealthState) -> None:
    assert after(*signs).state is state


def test_empty_node_is_bad_at_once_and_returns_only_by_tests_after_repair() -> None:
    bad = after(X, is_empty=True)
    assert bad.state is S.BAD
    assert after(G, G, G, G, start=bad).state is S.BAD
    repaired = bad.repairing(5.0)
    assert after(G, start=repaired).state is S.IN_REPAIR
    assert after(G, W, G, start=repaired).state is S.IN_REPAIR
    back = after(G, G, start=repaired)
    assert (back.state, back.evidence) == (S.HEALTHY, ())


def full(at_s: float, severity: Severity = X) -> HealthSign:
    return HealthSign(at_s=at_s, source="disk", severity=severity, text="full", passes=True)


@pytest.mark.parametrize("is_empty", [True, False])
def test_node_whose_trouble_passes_by_itself_returns_after_good_checks_without_repair(is_empty: bool) -> None:
    out = NodeHealth().after(full(0.0), is_empty=is_empty)
    assert not out.state.takes_jobs

    once = after(G, start=out, is_empty=is_empty)
    assert not once.state.takes_jobs
    back = after(G, start=once, is_empty=is_empty)

    assert (back.state, back.evidence, back.bad) == (S.HEALTHY, (), 0)


def test_trouble_that_passes_hides_none_that_lasts() -> None:
    both = after(X, start=NodeHealth().after(full(0.0), is_empty=True))

    assert after(G, G, G, G, start=both).state is S.BAD


@pytest.mark.parametrize("passes", [True, False])
def test_health_survives_its_json_form(passes: bool) -> None:
    health = after(W, X) if not passes else after(W).after(full(3.0))

    assert decode_health(health.encode()) == health


@pytest.mark.parametrize(
    ("xid", "action", "severity"),
    [
        (13, XidAction.RESTART_JOB, G),
        (79, XidAction.REBOOT, X),
        (95, XidAction.RESET_GPU, X),
        (63, XidAction.IGNORE, G),
        (48, XidAction.FOLLOW_OTHERS, X),
        (45, XidAction.FOLLOW_OTHERS, G),
        (154, XidAction.READ_RECOVERY, W),
        (999, XidAction.ASK, W),
    ],
)
def test_action_of_an_xid(xid: int, action: XidAction, severity: Severity) -> None:
    assert (action_for(xid), severity_of(xid)) == (action, severity)
