from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.kubernetes.bed import Bed, NoCluster, made_bed
from e2e.kubernetes.hollow import Hollow, node_object
from e2e.kubernetes.replica import Replica, View
from rota.drivers.kubernetes.install.manifests import InstallOptions, manifests

NAMESPACE = "rota-system"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
Launch = Callable[..., Replica]


def prepared(bed: Bed) -> Bed:
    """What `rota k8s manifests` prints, but for the program itself: tests run that."""
    said = bed.admin.get("/version")
    major, minor = ("".join(filter(str.isdigit, said.get(name, ""))) for name in ("major", "minor"))
    release = (
        (int(major), int(minor)) if major and minor else (1, 20)
    )  # the one built from Debian's source says nothing
    for value in manifests(InstallOptions(namespace=NAMESPACE, release=release)):
        if value["kind"] not in ("Deployment", "Service") and "Webhook" not in value["kind"]:
            bed.admin.make(value)
    return bed


class Beds:
    """The control planes of one process: started when a test needs one, stopped when no test here needs any more."""

    def __init__(self) -> None:
        self._made: dict[bool, tuple[Bed, Iterator[Bed]]] = {}

    def get(self, *, controllers: bool) -> Bed:
        if controllers not in self._made:
            making = made_bed(controllers=controllers)
            try:
                self._made[controllers] = (prepared(next(making)), making)
            except NoCluster as error:
                pytest.skip(str(error))
        return self._made[controllers][0]

    def stop(self) -> None:
        for _, making in self._made.values():
            next(making, None)
        self._made.clear()


BEDS = Beds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """What comes after the last test of a folder needs neither the memory nor the CPU that control planes take."""
    yield
    if nextitem is None or nextitem.path.parent != item.path.parent:
        BEDS.stop()


@pytest.fixture
def bed() -> Iterator[Bed]:
    """A control plane without controllers, empty."""
    found = BEDS.get(controllers=False)
    yield found
    _clear(found)


@pytest.fixture
def managed() -> Iterator[Bed]:
    """A control plane with controllers: Jobs make pods, lost nodes are noticed."""
    found = BEDS.get(controllers=True)
    yield found
    _clear(found)


def _clear(bed: Bed) -> None:
    admin = bed.admin
    now = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
    for value in admin.items("/apis/batch/v1/jobs"):
        meta = value["metadata"]
        admin.delete(f"/apis/batch/v1/namespaces/{meta['namespace']}/jobs/{meta['name']}", now)
    while pods := admin.items("/api/v1/pods"):
        for space in {each["metadata"]["namespace"] for each in pods}:
            admin.delete(f"/api/v1/namespaces/{space}/pods", now)
    admin.delete("/api/v1/nodes", now)
    for value in admin.items(PRIORITIES):
        if not (name := value["metadata"]["name"]).startswith("system-"):
            admin.delete(f"{PRIORITIES}/{name}", now)


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Starts replicas of Rota, and stops them when the test is over."""
    made: list[Replica] = []

    def begin(bed: Bed, settings: dict[str, Any] | None = None, **more: Any) -> Replica:
        made.append(Replica(bed, tmp_path / f"replica-{len(made)}", settings, **more))
        return made[-1].start()

    yield begin
    for replica in made:
        if replica.process is not None and replica.process.poll() is None:
            replica.kill()


@pytest.fixture
def kubelets() -> Iterator[Callable[..., Hollow]]:
    """Starts hollow kubelets for nodes that it makes."""
    made: list[Hollow] = []

    def begin(bed: Bed, nodes: int = 2, gpus: int = 8, **more: Any) -> Hollow:
        for number in range(nodes):
            bed.admin.make(node_object(f"n{number + 1}", gpus))
        made.append(Hollow(bed.kubeconfig("admin-token"), **more).start())
        return made[-1]

    yield begin
    for hollow in made:
        hollow.stop()


@pytest.fixture
def view(bed: Bed) -> View:
    return View(bed.admin)


@pytest.fixture
def seen(managed: Bed) -> View:
    return View(managed.admin)
