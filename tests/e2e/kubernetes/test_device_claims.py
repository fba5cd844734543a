"""Dynamic resource allocation on a real server: devices of ResourceSlices are allocated with the placement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from drivers.kubernetes.devices.cases import claim_object, class_object, request, slice_object, template_object
from e2e.kubernetes.bed import Bed
from e2e.kubernetes.hollow import Hollow
from e2e.kubernetes.replica import Replica, View, gang, pod
from managers import eventually

pytestmark = pytest.mark.slow
Launch = Callable[..., Replica]
Kubelets = Callable[..., Hollow]
Json = dict[str, Any]
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
OLDER = 34
"""The release that brought resource.k8s.io/v1."""


def claiming(name: str, claim: str, *, of_template: bool = False, gpus: int = 0, **more: Any) -> Json:
    """A pod with a ResourceClaim."""
    source = {"resourceClaimTemplateName" if of_template else "resourceClaimName": claim}
    value = pod(name, gpus, resourceClaims=[{"name": "gpus", **source}], **more)
    value["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpus"}]
    return value


@pytest.fixture
def offering(managed: Bed) -> Any:
    """A cluster whose two nodes offer four devices each through ResourceSlices."""
    if managed.minor < OLDER:
        pytest.skip(f"release 1.{managed.minor} has no resource.k8s.io/v1")
    managed.admin.make(class_object())
    for node in ("n1", "n2"):
        managed.admin.make(slice_object(node, 4))
    yield managed
    for path in ("resourceslices", "deviceclasses"):
        managed.admin.delete(f"/apis/resource.k8s.io/v1/{path}")
    managed.admin.delete(CLAIMS)
    managed.admin.delete("/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates")


def claims(bed: Bed) -> dict[str, Json]:
    return {each["metadata"]["name"]: each for each in bed.admin.items(CLAIMS)}


def devices(claim: Json) -> list[tuple[str, str]]:
    """The devices of a claim as (pool, device)."""
    allocation = claim.get("status", {}).get("allocation") or {}
    return [(each["pool"], each["device"]) for each in allocation.get("devices", {}).get("results", ())]


def test_claims_are_allocated_with_the_placement_and_given_back(
    offering: Bed, seen: View, launch: Launch, kubelets: Kubelets
) -> None:
    kubelets(offering, nodes=2, gpus=0, beats=True)
    launch(offering)
    offering.admin.make(template_object("two", request("gpus", 2)))
    labels = {"rota.dev/job": "team", "rota.dev/tasks": "4"}
    for number in range(4):
        offering.admin.make(claiming(f"team-{number}", "two", of_template=True, labels=labels))

    eventually(lambda: len(seen.running("team")) == 4, within_s=40)
    held = [device for claim in claims(offering).values() for device in devices(claim)]
    assert len(held) == len(set(held)) == 8
    for each in seen.running("team"):
        name = each["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
        claim = claims(offering)[name]
        assert {pool for pool, _ in devices(claim)} == {each["spec"]["nodeName"]}
        assert [user["uid"] for user in claim["status"]["reservedFor"]] == [each["metadata"]["uid"]]

    offering.admin.make(claiming("late", "two", of_template=True))
    seen.gets_reason("late", "ResourceClaims ask for are not free")
    offering.admin.delete("/api/v1/namespaces/default/pods/team-0", {"gracePeriodSeconds": 0})
    eventually(lambda: seen.node_of("late"), within_s=40)


def test_a_gang_gets_all_its_claims_or_none(offering: Bed, seen: View, launch: Launch, kubelets: Kubelets) -> None:
    kubelets(offering, nodes=2, gpus=0, beats=True)
    launch(offering)
    offering.admin.make(template_object("three", request("gpus", 3)))
    for value in gang("big", 3, 0):
        value["spec"] |= {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "three"}]}
        offering.admin.make(value)

    seen.gets_reason("big-0", "no nodes suit its 3 pods together")
    assert not any(devices(claim) for claim in claims(offering).values())


def test_selectors_and_what_can_not_be_evaluated(offering: Bed, seen: View, launch: Launch, kubelets: Kubelets) -> None:
    kubelets(offering, nodes=2, gpus=0, beats=True)
    launch(offering)
    attributes = 'device.attributes["gpu.example.com"]'
    last = f'{attributes}.index == 3 && {attributes}.driver.isGreaterThan(semver("12.0.0"))'
    small = 'device.capacity["gpu.example.com"].memory.isLessThan(quantity("40Gi"))'
    strange = 'device.driver.matches("(a+)+b")'
    for name, expression in (("last", last), ("small", small), ("strange", strange)):
        offering.admin.make(claim_object(name, request("gpus", 1, expression)))
        offering.admin.make(claiming(name, name))

    eventually(lambda: seen.node_of("last"))
    assert [device for _, device in devices(claims(offering)["last"])] == ["gpu-3"]
    seen.gets_reason("small", "are not free there")
    seen.gets_reason("strange", "repetitions within others")


def test_pods_that_share_a_claim_share_its_devices(
    offering: Bed, seen: View, launch: Launch, kubelets: Kubelets
) -> None:
    kubelets(offering, nodes=2, gpus=0, beats=True)
    launch(offering)
    offering.admin.make(claim_object("common", request("gpus", 4)))
    for name in ("one", "two", "three"):
        offering.admin.make(claiming(name, "common"))

    eventually(lambda: all(seen.node_of(name) for name in ("one", "two", "three")))
    assert len({seen.node_of(name) for name in ("one", "two", "three")}) == 1
    assert len(claims(offering)["common"]["status"]["reservedFor"]) == 3


def test_claims_are_refused_by_name_on_an_older_server(
    bed: Bed, view: View, launch: Launch, kubelets: Kubelets
) -> None:
    if bed.minor >= OLDER:
        pytest.skip(f"release 1.{bed.minor} has resource.k8s.io/v1")
    kubelets(bed, nodes=1)
    launch(bed)
    value = pod("old", 1)
    value["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimName": "x"}]
    bed.admin.make(value)
    # a server of that release drops the field that it does not know: the pod asks for nothing else and runs
    eventually(lambda: view.node_of("old"))
