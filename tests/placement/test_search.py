"""Which devices a job gets: patterns, localities, types, sockets, host resources."""

from __future__ import annotations

from typing import Any

import pytest

from builders import GIB, cluster, job, node, on
from placement.searches import ANY_DEVICE, HARD, inventory, nodes, place, within
from rota.core.errors import RotaError
from rota.core.model.job import DeviceType, Elastic, Level, Locality
from rota.core.model.placement import Placement
from rota.placement import style

A, B = DeviceType("a"), DeviceType("b")
# -- patterns ------------------------------------------------------------------------------------

SCATTERED = (on("n1", 1), on("n2", 3))
"""Of three nodes of four devices: three free on n1, one on n2, four on n3."""


@pytest.mark.parametrize("cpus", [0, 1000], ids=["devices alone", "with CPUs"])
@pytest.mark.parametrize(
    ("placement", "workers", "expected"),
    [
        ("any", 1, on("n1", [1])),
        ("any", 5, on("n1", [1, 2, 3], tasks=3) + on("n2", [3]) + on("n3", 1)),
        ("consolidate", 1, on("n2", [3])),
        ("consolidate", 3, on("n1", [1, 2, 3], tasks=3)),
        ("consolidate", 4, on("n3", 4, tasks=4)),
        ("consolidate", 5, on("n3", 4, tasks=4) + on("n2", [3])),
        ("consolidate", 6, on("n3", 4, tasks=4) + on("n1", [1, 2], tasks=2)),
        ("best-fit", 1, on("n2", [3])),
        ("best-fit", 4, on("n3", 4, tasks=4)),
        ("best-fit", 5, on("n2", [3]) + on("n1", [1, 2, 3], tasks=3) + on("n3", 1)),
        ("even", 4, on("n3", 4, tasks=4)),
        ("even", 6, on("n3", 3, tasks=3) + on("n1", [1, 2, 3], tasks=3)),
        ("even", 7, on("n3", 4, tasks=4) + on("n1", [1, 2, 3], tasks=3)),
        ("consecutive", 1, on("n2", [3])),
        ("consecutive", 3, on("n1", [1, 2, 3], tasks=3)),
        ("consecutive", 5, on("n1", [1, 2, 3], tasks=3) + on("n2", [3]) + on("n3", 1)),
        ("spread", 1, on("n3", 1)),
        ("spread", 2, on("n3", 1) + on("n1", [1])),
        ("spread", 5, on("n3", 2, tasks=2) + on("n1", [1, 2], tasks=2) + on("n2", [3])),
        ("skew", 5, on("n1", [1, 2, 3], tasks=3) + on("n2", [3]) + on("n3", 1)),
    ],
)
def test_pattern(placement: str, workers: int, expected: Placement, cpus: int) -> None:
    books = inventory(nodes(4, 4, 4), *SCATTERED)

    assert place(books, job(workers=workers, cpu_milli=cpus), placement) == expected


def test_consecutive_goes_by_idle_cpus_where_nodes_count_them() -> None:
    """Two devices are free on n1 and n3, one on n2; n3 has fewest idle CPUs."""
    of = cluster(*(node(name, 2, cpu_milli=cpus) for name, cpus in (("n1", 32000), ("n2", 32000), ("n3", 2000))))
    books = inventory(of)
    books.take(on("n2", 1), job(gpus=1).roles)

    assert place(books, job(gpus=1, cpu_milli=1000), "consecutive") == on("n3", 1)
    assert place(books, job(gpus=1, cpu_milli=4000), "consecutive") == on("n1", 1)


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        (1, on("n4", [2])),
        (2, on("n4", [2, 3], tasks=2)),
        (4, on("n2", 4, tasks=4)),
        (6, on("n1", [3]) + on("n2", 4, tasks=4) + on("n4", [2])),
        (8, None),
    ],
)
def test_consecutive_takes_the_tightest_run_that_suffices(workers: int, expected: Placement | None) -> None:
    """One device is free on n1 and four on n2, which are one run, and two on n4, another."""
    books = inventory(nodes(4, 4, 4, 4), on("n1", 3), on("n3", 4), on("n4", 2))

    assert place(books, job(workers=workers), "consecutive") == expected


@pytest.mark.parametrize("placement", ["any", "consolidate", "spread", "best-fit", "even", "skew"])
def test_gang_that_does_not_fit_gets_nothing(placement: str) -> None:
    books = inventory(nodes(4, 4, 4), *SCATTERED)

    assert place(books, job(workers=9), placement) is None
    assert place(books, job(gpus=3, workers=3), placement) is None


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        ("any", on("n1", [1, 2]) + on("n3", 2)),
        ("consolidate", on("n3", 4, tasks=2)),
        ("spread", on("n3", 2) + on("n1", [1, 2])),
        ("best-fit", on("n3", 4, tasks=2)),
    ],
)
def test_task_of_two_devices_has_both_on_one_node(placement: str, expected: Placement) -> None:
    books = inventory(nodes(4, 4, 4), *SCATTERED)

    assert place(books, job(gpus=2, workers=2), placement) == expected


def test_skewed_model_is_consolidated_and_insists() -> None:
    skew = style("skew")

    assert skew.locality(job(model="vgg16")) == Locality(hard=True)
    assert skew.locality(job(model="VGG19")).hard
    assert not skew.locality(job(model="resnet50")).hard
    assert not skew.locality(job()).hard
    books = inventory(nodes(4, 4, 4), *SCATTERED)
    assert place(books, job(model="vgg16", workers=4), "skew") == on("n3", 4, tasks=4)
    assert place(books, job(model="resnet50", workers=4), "skew") == on("n1", [1, 2, 3], tasks=3) + on("n2", [3])


def test_jobs_that_are_placed_alike_are_alike() -> None:
    consolidate, skew = style("consolidate"), style("skew")

    assert consolidate.alike(job("a")) == consolidate.alike(job("b", priority=3, model="vgg16"))
    assert consolidate.alike(job("a")) != consolidate.alike(job("b", exclusive=True))
    assert consolidate.alike(job("a")) != consolidate.alike(job("b", locality=HARD))
    assert consolidate.alike(job("a")) != consolidate.alike(job("b", elastic=Elastic(min_tasks=1, max_tasks=1)))
    assert skew.alike(job("a", model="vgg16")) != skew.alike(job("b", model="resnet50"))
    assert skew.alike(job("a", model="vgg16")) == skew.alike(job("b", model="vgg19"))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("consolidated", "unknown placement 'consolidated'; did you mean 'consolidate'?"),
        ("any:relax_after=5", "placement 'any' has no parameter 'relax_after'"),
        ("skew:relax_after=5", "placement 'skew' has no parameter 'relax_after'"),
        ("consolidate:relax=5", "placement 'consolidate' has no parameter 'relax'"),
        ("consolidate:relax_after=soon", "relax_after is 'soon'"),
        ("consolidate:relax_after=-1", "relax_after is '-1'"),
        ("consolidate:relax_after=nan", "relax_after is 'nan'"),
        ("consolidate:relax_after", "relax_after is ''"),
        ("consolidate:per_run=much", "per_run is 'much'; it must be a number of 0 or more"),
        ("consolidate:relax_after=5,per_run=-1", "per_run is '-1'"),
        ("consolidate:relax_after=5,per_run=inf", "per_run is inf; use relax_after=inf"),
        ("consolidate:relax_after=5,other=1", "placement 'consolidate' has no parameter 'other'"),
        ("attempts:per_run=1", "placement 'attempts' has no parameter 'per_run'"),
    ],
)
def test_wrong_placement_is_refused(spec: str, message: str) -> None:
    with pytest.raises(RotaError) as refused:
        style(spec)
    assert message in str(refused.value)


def test_consolidation_insists_for_as_long_as_it_is_told() -> None:
    assert style("consolidate").locality(job()) == Locality(hard=False, relax_after_s=0.0)
    assert style("consolidate:relax_after=60").locality(job()) == Locality(hard=True, relax_after_s=60.0)
    assert style("consolidate:relax_after=inf").locality(job()) == Locality(hard=True)
    own = Locality(level=Level.RACK)
    assert style("consolidate:relax_after=60").locality(job(locality=own)) is own


@pytest.mark.parametrize(("ran_s", "waits_s"), [(0.0, 60.0), (1000.0, 310.0)])
def test_consolidation_insists_longer_for_a_job_that_has_run_long(ran_s: float, waits_s: float) -> None:
    for spec in ("consolidate:relax_after=60,per_run=0.25", "consolidate:per_run=0.25,relax_after=60"):
        assert [until_s for until_s, _ in style(spec).ladder(job(), ran_s)] == [waits_s]
    assert style("consolidate:relax_after=60").ladder(job(), ran_s)[0][0] == 60.0
    own = Locality(hard=True, relax_after_s=5.0)
    assert style("consolidate:per_run=1").ladder(job(locality=own), ran_s) == ((5.0, own),)


# -- locality ------------------------------------------------------------------------------------

RACKS = cluster(
    node("n1", 2, rack="r1", domain="d1"),
    node("n2", 2, rack="r2", domain="d1"),
    node("n3", 2, rack="r2", domain="d1"),
    node("n4", 2, rack="r3", domain="d2"),
    node("n5", 2, rack="r3", domain="d2"),
    node("n6", 2, rack="r3", domain="d2"),
)


def test_job_that_insists_is_on_no_more_nodes_than_it_must_be() -> None:
    books = inventory(nodes(4, 4), on("n1", 1))

    assert place(books, job(workers=4), insist=HARD) == on("n2", 4, tasks=4)
    assert place(books, job(workers=5), insist=HARD) == on("n2", 4, tasks=4) + on("n1", [1])
    books.take(on("n2", 1), ANY_DEVICE)
    assert place(books, job(workers=4), insist=HARD) is None
    assert place(books, job(workers=4)) == on("n1", [1, 2, 3], tasks=3) + on("n2", [1])


@pytest.mark.parametrize(
    ("level", "workers", "where"),
    [
        (Level.RACK, 2, "n1"),
        (Level.RACK, 4, "n2 n3"),
        (Level.RACK, 6, "n4 n5 n6"),
        (Level.RACK, 7, None),
        (Level.DOMAIN, 4, "n1 n2"),
        (Level.DOMAIN, 7, None),
        (Level.CLUSTER, 7, "n1 n2 n3 n4"),
    ],
)
def test_tightest_cell_that_takes_all(level: Level, workers: int, where: str | None) -> None:
    found = place(inventory(RACKS), job(workers=workers), "any", within(level))

    names = None if found is None else " ".join(f"n{slot.node + 1}" for slot in found)
    assert names == where


def test_tightest_cell_is_taken_whatever_the_order() -> None:
    of = cluster(node("n1", 4, rack="large"), node("n2", 2, rack="small"), node("n3", 3, rack="middle"))

    assert place(inventory(of), job(workers=2), "any", within(Level.RACK)) == on("n2", 2, tasks=2)
    assert place(inventory(of), job(workers=3), "any", within(Level.RACK)) == on("n3", 3, tasks=3)


def test_consolidation_prefers_one_rack_then_one_domain() -> None:
    books = inventory(RACKS)

    def where(workers: int) -> list[int]:
        return [slot.node + 1 for slot in place(books, job(workers=workers)) or ()]

    assert where(4) == [2, 3]
    books.take(on("n3", 2), ANY_DEVICE)
    assert where(4) == [4, 5]
    books.take(on("n5", 2), ANY_DEVICE)
    books.take(on("n6", 2), ANY_DEVICE)
    assert where(4) == [1, 2]


def test_consolidation_takes_no_further_node_to_stay_in_one_rack() -> None:
    """Rack r1 has room for six tasks, but on three nodes; n4 and one of r1's need only two."""
    small = (node(name, 2, rack="r1") for name in ("n1", "n2", "n3"))
    books = inventory(cluster(*small, node("n4", 4, rack="r2")))

    assert place(books, job(workers=6)) == on("n4", 4, tasks=4) + on("n1", 2, tasks=2)


# -- types, sockets, sizes, hosts ----------------------------------------------------------------


def test_gang_is_on_one_type_and_the_best_that_has_room() -> None:
    books = inventory(cluster(node("n1", 2, device_type=A), node("n2", 3, device_type=B), node("n3", 1, device_type=A)))

    assert place(books, job(workers=2)) == on("n1", 2, tasks=2)
    assert place(books, job(workers=2, device_types=(B, A))) == on("n2", 2, tasks=2)
    assert place(books, job(workers=3)) == on("n1", 2, tasks=2) + on("n3", 1)
    assert place(books, job(workers=3, device_types=(B,))) == on("n2", 3, tasks=3)
    assert place(books, job(workers=4)) is None
    assert place(books, job(device_types=(DeviceType("c"),))) is None


def test_scattered_type_is_passed_over_when_tasks_need_several_devices() -> None:
    books = inventory(cluster(node("n1", 1, device_type=A), node("n2", 1, device_type=A), node("n3", 2, device_type=B)))

    assert place(books, job(gpus=2)) == on("n3", 2)


@pytest.mark.parametrize(
    ("taken", "gpus", "devices"),
    [
        ((), 2, [0, 1]),
        ((), 4, [0, 1, 2, 3]),
        ((on("n1", [0, 1, 2]),), 1, [3]),
        ((on("n1", [4, 5, 6]),), 1, [7]),
        ((on("n1", [0, 1, 2]),), 2, [4, 5]),
        ((on("n1", [0]),), 5, [1, 4, 5, 6, 7]),
    ],
    ids=[
        "lowest",
        "a whole socket",
        "the tightest socket",
        "the tightest is the second",
        "the other socket",
        "the fullest first",
    ],
)
def test_devices_of_one_socket_are_preferred(taken: tuple[Placement, ...], gpus: int, devices: list[int]) -> None:
    books = inventory(cluster(node("n1", 8, sockets=(4, 4))), *taken)

    assert place(books, job(gpus=gpus)) == on("n1", devices)


def test_elastic_job_takes_the_largest_size_that_fits() -> None:
    asked = job(gpus=1, workers=4, elastic=Elastic(min_tasks=2, max_tasks=8))
    books = inventory(nodes(2, 2), on("n1", 1))

    assert place(books, asked) == on("n2", 2, tasks=2) + on("n1", [1])
    assert place(books, asked, insist=HARD) == on("n2", 2, tasks=2) + on("n1", [1])
    books.take(on("n2", 1), ANY_DEVICE)
    assert place(books, asked) == on("n1", [1]) + on("n2", [1])
    books.take(on("n2", [1]), ANY_DEVICE)
    assert place(books, asked) is None


@pytest.mark.parametrize(
    ("need", "expected"),
    [
        ({"cpu_milli": 2000}, on("n1", 1) + on("n2", 2, tasks=2)),
        ({"memory_bytes": 2 * GIB}, on("n1", 1) + on("n2", 2, tasks=2)),
        ({"network_bps": 200}, on("n1", 1) + on("n2", 2, tasks=2)),
        ({"disk_bps": 20}, on("n1", 1) + on("n2", 2, tasks=2)),
        ({"device_memory_bytes": 20 * GIB}, on("n2", 3, tasks=3)),
        ({"cpu_milli": 4000}, None),
    ],
    ids=["cpus", "memory", "network", "disk", "device memory", "too much"],
)
def test_host_resources_limit_the_tasks_of_a_node(need: dict[str, Any], expected: Placement | None) -> None:
    books = inventory(
        cluster(
            node(
                "n1",
                4,
                cpu_milli=3000,
                memory_bytes=3 * GIB,
                network_bps=300,
                disk_bps=30,
                device_memory_bytes=16 * GIB,
            ),
            node(
                "n2",
                4,
                cpu_milli=5000,
                memory_bytes=5 * GIB,
                network_bps=500,
                disk_bps=50,
                device_memory_bytes=32 * GIB,
            ),
        )
    )

    assert place(books, job(workers=3, **need), "any") == expected
