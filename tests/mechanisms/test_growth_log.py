"""The growth log tells of each moment in the past on which nodes more became available since."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rota.mechanisms.ordering.growth_log import GrowthLog


@given(st.lists(st.integers(0, 2**70), max_size=12))
def test_it_tells_the_nodes_since_every_count(entries: list[int]) -> None:
    log = GrowthLog()
    counted: list[tuple[int, int]] = []
    for nodes in entries:
        counted.append((log.count, nodes))
        log.note(nodes)

    for at, (count, _) in enumerate(counted):
        expected = 0
        for _, nodes in counted[at:]:
            expected |= nodes
        assert log.since(count) == expected
    assert log.since(log.count) == 0
