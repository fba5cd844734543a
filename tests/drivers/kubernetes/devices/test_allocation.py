from __future__ import annotations

from typing import Any

import pytest

from drivers.kubernetes.devices.cases import claim_object, class_object, device_object, request, slice_object
from rota.drivers.kubernetes.devices.allocation import NotAllocatable, allocate, mistake
from rota.drivers.kubernetes.devices.device_facts import Allocation, DeviceBook
from rota.drivers.kubernetes.devices.device_objects import allocation_object, claim_of, kind_of, slice_of
from rota.drivers.kubernetes.filters.facts import NodeFacts
from rota.drivers.kubernetes.objects.pod_annotations import NODE_NAME

Json = dict[str, Any]
NODE = NodeFacts(name="n1", labels={"zone": "a", NODE_NAME: "n1"})
SOCKET = "gpu.example.com/socket"


def book_of(*slices: Json, classes: tuple[Json, ...] = (class_object(),), claims: tuple[Json, ...] = ()) -> DeviceBook:
    book = DeviceBook()
    for each in slices or (slice_object("n1", 4),):
        book.put(slice_of(each))
    book.kinds |= {each["metadata"]["name"]: kind_of(each) for each in classes}
    for each in claims:
        claim = claim_of(each)
        book.claims[claim.key] = claim
    return book


def allocated(book: DeviceBook, *claims: Json, node: NodeFacts = NODE) -> list[Allocation]:
    return allocate([claim_of(each) for each in claims], node, book, book.in_use())


def names(allocation: Allocation) -> list[str]:
    return [each.id.device for each in allocation.devices]


def test_the_first_devices_that_suit_are_allocated_on_their_node() -> None:
    (found,) = allocated(book_of(), claim_object("c", request("gpus", 2)))
    assert names(found) == ["gpu-0", "gpu-1"]
    assert found.node_name == "n1"


def test_devices_that_others_hold_are_not_allocated_again() -> None:
    taken = claim_object("other")
    results = [{"request": "gpus", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}]
    taken["status"] = {"allocation": {"devices": {"results": results}}}
    book = book_of(claims=(taken,))
    assert names(allocated(book, claim_object("c"))[0]) == ["gpu-1"]
    with pytest.raises(NotAllocatable, match="not free"):
        allocated(book, claim_object("c", request("gpus", 4)))
    admin = claim_object("c", request("gpus", 4, adminAccess=True))
    assert len(allocated(book, admin)[0].devices) == 4


def test_all_takes_every_device_or_none() -> None:
    every = claim_object("c", {"name": "gpus", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}})
    assert len(allocated(book_of(), every)[0].devices) == 4
    with pytest.raises(NotAllocatable):
        allocated(book_of(), claim_object("first"), every)


def test_selectors_of_class_and_claim_both_hold() -> None:
    mixed = slice_object(
        "n1", devices=[device_object(0), device_object(1, model="h100"), device_object(2, model="h100")]
    )
    wanted = 'device.attributes["gpu.example.com"].model == "h100"'
    later = 'device.attributes["gpu.example.com"].index > 1'
    book = book_of(mixed, classes=(class_object(expression=wanted),))
    assert names(allocated(book, claim_object("c", request("gpus", 1, later)))[0]) == ["gpu-2"]


def test_an_expression_that_fails_on_a_device_is_named() -> None:
    with pytest.raises(NotAllocatable, match="no such key: absent"):
        allocated(book_of(), claim_object("c", request("gpus", 1, 'device.attributes["gpu.example.com"].absent')))


def test_constraints_between_devices_are_searched_for() -> None:
    together = claim_object("c", request("gpus", 2), constraints=[{"matchAttribute": SOCKET}])
    one = claim_object("one")
    found = allocated(book_of(), one, together)
    assert [names(each) for each in found] == [["gpu-0"], ["gpu-2", "gpu-3"]]
    apart = claim_object("c", request("gpus", 2), constraints=[{"distinctAttribute": SOCKET}])
    assert names(allocated(book_of(), apart)[0]) == ["gpu-0", "gpu-2"]


def test_choices_are_tried_in_order() -> None:
    several = {
        "name": "gpus",
        "firstAvailable": [
            {"name": "many", "deviceClassName": "gpu", "count": 8},
            {"name": "few", "deviceClassName": "gpu", "count": 2},
        ],
    }
    (found,) = allocated(book_of(), claim_object("c", several))
    assert {each.request for each in found.devices} == {"gpus/few"}
    assert len(found.devices) == 2


def test_tainted_devices_need_a_toleration() -> None:
    taint = {"key": "broken", "value": "yes", "effect": "NoSchedule"}
    book = book_of(slice_object("n1", devices=[device_object(0, taints=[taint])]))
    with pytest.raises(NotAllocatable):
        allocated(book, claim_object("c"))
    tolerated = [{"key": "broken", "operator": "Exists"}]
    assert allocated(book, claim_object("c", request("gpus", 1, tolerations=tolerated)))


def test_partitions_share_the_counters_of_their_device() -> None:
    whole = [{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}]

    def part(number: int, memory: str) -> Json:
        return device_object(
            number, consumesCounters=[{"counterSet": "gpu-0", "counters": {"memory": {"value": memory}}}]
        )

    book = book_of(
        slice_object("n1", devices=[part(0, "40Gi"), part(1, "60Gi"), part(2, "40Gi")], sharedCounters=whole)
    )
    assert names(allocated(book, claim_object("c", request("gpus", 2)))[0]) == ["gpu-0", "gpu-2"]
    with pytest.raises(NotAllocatable):
        allocated(book, claim_object("c", request("gpus", 3)))


def test_pools_that_are_not_complete_are_not_used() -> None:
    pool = {"name": "n1", "generation": 2, "resourceSliceCount": 2}
    with pytest.raises(NotAllocatable):
        allocated(book_of(slice_object("n1", pool=pool)), claim_object("c"))


def test_devices_of_many_nodes_keep_their_selector() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    shared = slice_object("fabric", nodeName=None, nodeSelector={"nodeSelectorTerms": [term]})
    claim = claim_object("c")
    (found,) = allocated(book_of(shared), claim)
    assert allocation_object(found, claim, {})["nodeSelector"] == {"nodeSelectorTerms": [term]}
    with pytest.raises(NotAllocatable):
        allocated(book_of(shared), claim, node=NodeFacts(name="n2", labels={"zone": "b"}))


def test_an_allocation_is_written_as_kubernetes_reads_it() -> None:
    config = {"opaque": {"driver": "gpu.example.com", "parameters": {"mode": "shared"}}}
    claim = claim_object("c", config=[config])
    kind = class_object()
    kind["spec"]["config"] = [config]
    (found,) = allocated(book_of(), claim)
    written = allocation_object(found, claim, {"gpu": kind})
    assert written["devices"]["results"] == [
        {"request": "gpus", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
    ]
    assert [each["source"] for each in written["devices"]["config"]] == ["FromClass", "FromClaim"]
    assert claim_of({**claim, "status": {"allocation": written}}).allocation is not None


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        (claim_object("c", request("gpus", 1, "math.abs(1) == 1")), "function abs is not supported"),
        (claim_object("c", request("gpus", 1, capacity={"requests": {"memory": "1Gi"}})), "capacity of a device"),
        (claim_object("c", {"name": "gpus"}), "neither `exactly` nor `firstAvailable`"),
        (claim_object("c", {"name": "g", "exactly": {"deviceClassName": "none"}}), "DeviceClass none does not exist"),
        (claim_object("c", constraints=[{"new": 1}]), "is not supported"),
    ],
)
def test_what_can_not_be_honoured_is_named(claim: Json, words: str) -> None:
    assert words in mistake(claim_of(claim), book_of())
