"""Conditions of nodes that come and go: such a node takes jobs again only after it has been well for a while."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drivers.kubernetes.objects import node_object
from rota.drivers.kubernetes.filters.flapping_nodes import TIMES, WELL_S, WITHIN_S
from rota.drivers.kubernetes.gangs.headroom import Headroom
from rota.drivers.kubernetes.gangs.node_cache import NodeCache
from rota.drivers.kubernetes.gangs.occupancy import Occupancy
from rota.drivers.kubernetes.settings import ClusterSettings


class Watched:
    """A node whose condition a test sets, as the driver sees it."""

    def __init__(self) -> None:
        self.cache = NodeCache(ClusterSettings(), Occupancy(), Headroom())

    def is_out(self, now_s: float, is_ill: bool | None = None) -> bool:
        """Take in a condition, if one is given, and tell whether the node is out of use now."""
        if is_ill is not None:
            value = node_object("n1")
            status = "True" if is_ill else "False"
            value["status"]["conditions"].append({"type": "XIDErrors", "status": status, "message": "Xid 79"})
            self.cache.see(value, now_s)
        self.cache.release(now_s)
        return bool(self.cache.unhealthy("n1"))


def test_node_comes_back_at_once_the_first_times_and_then_only_after_it_was_well() -> None:
    node = Watched()
    for turn in range(TIMES - 1):
        assert node.is_out(10.0 * turn, True)
        assert not node.is_out(10.0 * turn + 5, False)

    assert node.is_out(100.0, True)
    assert node.is_out(101.0, False)
    assert "has to be well for 10 minutes" in node.cache.unhealthy("n1")
    assert node.is_out(100.0 + WELL_S)
    assert not node.is_out(101.0 + WELL_S)


@given(
    st.lists(
        st.tuples(st.sampled_from([1.0, 60.0, WELL_S - 1, WELL_S, WITHIN_S]), st.none() | st.booleans()), max_size=30
    )
)
def test_node_is_out_while_it_is_ill_and_for_a_while_after_it_often_was(steps: list[tuple[float, bool | None]]) -> None:
    node, now_s = Watched(), 0.0
    began_s: list[float] = []
    ended_s, is_ill = None, False
    for passed_s, told in steps:
        now_s += passed_s
        if told and not is_ill:
            began_s.append(now_s)
        if told is False and is_ill:
            is_held = sum(at_s > now_s - WITHIN_S for at_s in began_s) >= TIMES
            ended_s = now_s if is_held else None
        is_ill = is_ill if told is None else told

        expected = is_ill or (ended_s is not None and now_s < ended_s + WELL_S)
        assert node.is_out(now_s, told) is expected
        if is_ill:
            ended_s = None
