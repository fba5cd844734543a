"""Tasks apart: equally many in every rack or domain, as far as there is room, under every placement."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import World, cluster, job, node
from placement.searches import HARD, inventory, place
from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.core.model.placement import Placement
from rota.files.job import submitted_job
from rota.placement import style

BY_RACK, BY_DOMAIN = (("apart", "rack"),), (("apart", "domain"),)


def racks(*rooms: list[int]) -> Cluster:
    """Racks of nodes with so many devices; two racks are a domain."""
    counted = [(rack, devices) for rack, of in enumerate(rooms) for devices in of]
    return cluster(
        *(
            node(f"n{at}", devices, rack=f"r{rack}", domain=f"d{rack // 2}")
            for at, (rack, devices) in enumerate(counted, start=1)
        )
    )


def by_rack(of: Cluster, placement: Placement | None) -> dict[str, int]:
    assert placement is not None
    found: Counter[str] = Counter()
    for slot in placement:
        found[of.nodes[slot.node].rack] += slot.tasks
    return dict(found)


@pytest.mark.parametrize("placement", ["any", "consolidate", "spread", "best-fit", "even", "skew", "liquid"])
def test_tasks_are_spread_equally_and_packed_within_a_rack(placement: str) -> None:
    of = racks([4, 4], [4, 4], [4, 4])

    found = place(inventory(of), job(workers=6, labels=BY_RACK), placement)

    assert by_rack(of, found) == {"r0": 2, "r1": 2, "r2": 2}
    assert found is not None
    assert len({slot.node for slot in found}) == 3


def test_without_the_label_it_stays_in_one_rack() -> None:
    of = racks([4, 4], [4, 4], [4, 4])

    assert len(by_rack(of, place(inventory(of), job(workers=6)))) == 1


def test_domains() -> None:
    of = racks([4], [4], [4], [4])

    assert by_rack(of, place(inventory(of), job(workers=4, labels=BY_DOMAIN))) == {"r0": 2, "r2": 2}


def test_job_takes_what_there_is_and_does_not_wait() -> None:
    of = racks([4, 4], [1])

    assert by_rack(of, place(inventory(of), job(workers=6, labels=BY_RACK))) == {"r0": 5, "r1": 1}
    assert place(inventory(of), job(workers=10, labels=BY_RACK)) is None


@given(
    rooms=st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=4), min_size=1, max_size=5),
    workers=st.integers(1, 60),
    gpus=st.integers(1, 3),
)
def test_no_rack_has_two_tasks_more_than_one_with_room(rooms: list[list[int]], workers: int, gpus: int) -> None:
    of = racks(*rooms)
    room = {f"r{at}": sum(devices // gpus for devices in each) for at, each in enumerate(rooms)}

    found = place(inventory(of), job(workers=workers, gpus=gpus, labels=BY_RACK))

    assert (found is None) == (sum(room.values()) < workers)
    if found is not None:
        taken = by_rack(of, found)
        assert sum(taken.values()) == workers
        fewest = min((taken.get(rack, 0) for rack in room if taken.get(rack, 0) < room[rack]), default=workers)
        assert max(taken.values()) <= fewest + 1


def test_hard_locality_of_a_style_does_not_hold_for_it_but_its_own_does() -> None:
    strict = style("consolidate:relax_after=100")

    assert strict.ladder(job(workers=2, labels=BY_RACK)) == ()
    assert strict.ladder(job(workers=2, labels=BY_RACK, locality=HARD)) == ((HARD.relax_after_s, HARD),)


def test_like_jobs_with_and_without_the_label_are_told_apart() -> None:
    world = World(of=racks([2], [2], [2]), placement="consolidate")

    packed, spread = world.submit("packed", workers=2), world.submit("spread", workers=2, labels=BY_RACK)

    assert [len(each.placement) for each in (*packed, *spread)] == [1, 2]  # type: ignore[union-attr]
    alike = style("consolidate").alike
    assert alike(job("a", workers=2)) != alike(job("b", workers=2, labels=BY_RACK))
    assert alike(job("a", labels=BY_DOMAIN)) != alike(job("b", labels=BY_RACK))


def test_other_values_are_refused() -> None:
    with pytest.raises(RotaError, match=r"labels\.apart is 'row'; it must be rack or domain"):
        submitted_job({"run": "true", "labels": {"apart": "row"}})
