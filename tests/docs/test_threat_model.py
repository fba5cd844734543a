"""The threat model lists every attack that the tests try, and there are enough of them."""

from __future__ import annotations

import pytest

from docs.threat_page import PAGE, CollectedAttacks, collect, page

LEAST = 80

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def collected() -> CollectedAttacks:
    """The marked tests; skips where some of them can't be collected."""
    found = collect()
    if found.skipped:
        pytest.skip(f"{', '.join(found.skipped)} can't be collected here")
    return found


def test_page_is_current(collected: CollectedAttacks) -> None:
    assert PAGE.read_text(encoding="utf-8") == page(collected), "run tests/docs/rewrite.py"


def test_many_attacks_are_tried(collected: CollectedAttacks) -> None:
    assert len(collected.attacks) >= LEAST


def test_every_attack_is_told_apart(collected: CollectedAttacks) -> None:
    told = [(attack.file, attack.what) for attack in collected.attacks]

    assert sorted({each for each in told if told.count(each) > 1}) == []
    assert all(attack.what and attack.stopped_by and attack.about for attack in collected.attacks)
