"""Follows the objects that the filters look at besides pods and nodes: namespaces, volumes, devices and claims."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from rota.drivers.kubernetes.api.client import Api, MissingRight
from rota.drivers.kubernetes.api.discovery import versions_of
from rota.drivers.kubernetes.api.informer import Informer
from rota.drivers.kubernetes.devices import device_objects
from rota.drivers.kubernetes.devices.device_facts import DeviceBook
from rota.drivers.kubernetes.filters.world import FilterState
from rota.drivers.kubernetes.objects.reading import NONSENSE
from rota.drivers.kubernetes.objects.volume_objects import claim_of, kind_of, limits_of, volume_of

log = logging.getLogger("rota.drivers.kubernetes")
Json = dict[str, Any]
K = TypeVar("K")
V = TypeVar("V")


class FactTable(Protocol):
    """One kind of object in the world."""

    def put(self, value: Json) -> None:
        """Record the present form of an object."""

    def drop(self, value: Json) -> None:
        """Forget an object."""

    def clear(self) -> None:
        """Forget all objects."""


class FactsByKey(Generic[K, V]):
    """Objects in a table of the world, by key."""

    def __init__(self, table: dict[K, V], key: Callable[[Json], K], read: Callable[[Json], V]) -> None:
        self._table = table
        self._key = key
        self._read = read

    def put(self, value: Json) -> None:
        """Record the present form of an object."""
        self._table[self._key(value)] = self._read(value)

    def drop(self, value: Json) -> None:
        """Forget an object."""
        self._table.pop(self._key(value), None)

    def clear(self) -> None:
        """Forget all objects."""
        self._table.clear()


class SliceTable:
    """ResourceSlices in the book of devices."""

    def __init__(self, book: DeviceBook) -> None:
        self._book = book

    def put(self, value: Json) -> None:
        """Record the present form of a slice; one that can't be read is none."""
        self._book.drop(_name(value))
        self._book.put(device_objects.slice_of(value))

    def drop(self, value: Json) -> None:
        """Forget a slice."""
        self._book.drop(_name(value))

    def clear(self) -> None:
        """Forget all slices."""
        self._book.clear()


def _name(value: Json) -> str:
    return str(value["metadata"]["name"])


def _full_name(value: Json) -> tuple[str, str]:
    return str(value["metadata"]["namespace"]), str(value["metadata"]["name"])


def _labels(value: Json) -> dict[str, str]:
    return {str(key): str(text) for key, text in (value["metadata"].get("labels") or {}).items()}


DEVICE_PATH = "/apis/resource.k8s.io/v1/"


class ClusterFacts:
    """The informers of these objects. They start with the term, before the first job is announced."""

    def __init__(self, api: Api, world: FilterState) -> None:
        self._api = api
        self._world = world
        volumes, devices = world.volumes, world.devices
        self.tables: dict[str, FactTable] = {
            "/api/v1/namespaces": FactsByKey(world.namespaces, _name, _labels),
            "/api/v1/persistentvolumes": FactsByKey(volumes.volumes, _name, volume_of),
            "/api/v1/persistentvolumeclaims": FactsByKey(volumes.claims, _full_name, claim_of),
            "/apis/storage.k8s.io/v1/storageclasses": FactsByKey(volumes.kinds, _name, kind_of),
            "/apis/storage.k8s.io/v1/csinodes": FactsByKey(volumes.limits, _name, limits_of),
            DEVICE_PATH + "resourceslices": SliceTable(devices),
            DEVICE_PATH + "deviceclasses": FactsByKey(devices.kinds, _name, device_objects.kind_of),
            DEVICE_PATH + "resourceclaims": FactsByKey(devices.claims, _full_name, device_objects.claim_of),
        }
        """What is known of each kind of object, by the path of its list."""
        self.informers: list[Informer] = []

    async def begin(self) -> None:
        """List everything once; devices and their claims only where the server knows them and lets them be read."""
        devices = self._world.devices
        devices.is_served = "v1" in await versions_of(self._api, "resource.k8s.io")
        for path in self.tables:
            is_device = path.startswith(DEVICE_PATH)
            if is_device and not devices.is_served:
                continue
            informer = self._informer(path)
            try:
                await informer.begin()
                self.informers.append(informer)
            except MissingRight as error:
                if not is_device:
                    raise
                log.warning("pods with resourceClaims are refused", extra={"why": str(error)})
                devices.is_served = False

    def _informer(self, path: str) -> Informer:
        def listed(values: list[Json]) -> None:
            self.tables[path].clear()
            for value in values:
                self.see(path, value)

        def changed(changes: list[Json]) -> None:
            for change in changes:
                self.see(path, change["object"], is_gone=change["type"] == "DELETED")

        return Informer(self._api, path, listed, changed)

    def see(self, path: str, value: Json, *, is_gone: bool = False) -> None:
        """Take an object in; one that makes no sense is left out."""
        table = self.tables[path]
        try:
            (table.drop if is_gone else table.put)(value)
        except NONSENSE as error:
            log.debug("an object can't be read and was left out", extra={"why": str(error)[:200]})
        self._world.version += 1
