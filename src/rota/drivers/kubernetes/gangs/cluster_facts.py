"""Follows the objects that the filters look at besides pods and nodes: namespaces, volumes, storage classes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from rota.drivers.kubernetes.api.client import Api
from rota.drivers.kubernetes.api.informer import Informer
from rota.drivers.kubernetes.filters.world import World
from rota.drivers.kubernetes.objects.reading import NONSENSE
from rota.drivers.kubernetes.objects.volume_objects import claim_of, kind_of, limits_of, volume_of

log = logging.getLogger("rota.drivers.kubernetes")
Json = dict[str, Any]
K = TypeVar("K")
V = TypeVar("V")


class Kept(Protocol):
    """One kind of object in the world."""

    def put(self, value: Json) -> None:
        """Record the present form of an object."""

    def drop(self, value: Json) -> None:
        """Forget an object."""

    def clear(self) -> None:
        """Forget all objects."""


class KeptTable(Generic[K, V]):
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


def _name(value: Json) -> str:
    return str(value["metadata"]["name"])


def _full_name(value: Json) -> tuple[str, str]:
    return str(value["metadata"]["namespace"]), str(value["metadata"]["name"])


def _labels(value: Json) -> dict[str, str]:
    return {str(key): str(text) for key, text in (value["metadata"].get("labels") or {}).items()}


class ClusterFacts:
    """The informers of these objects. They start with the term, before the first job is announced."""

    def __init__(self, api: Api, world: World) -> None:
        self._world = world
        book = world.volumes
        tables: dict[str, Kept] = {
            "/api/v1/namespaces": KeptTable(world.namespaces, _name, _labels),
            "/api/v1/persistentvolumes": KeptTable(book.volumes, _name, volume_of),
            "/api/v1/persistentvolumeclaims": KeptTable(book.claims, _full_name, claim_of),
            "/apis/storage.k8s.io/v1/storageclasses": KeptTable(book.kinds, _name, kind_of),
            "/apis/storage.k8s.io/v1/csinodes": KeptTable(book.limits, _name, limits_of),
        }
        self.informers = [self._informer(api, path, kept) for path, kept in tables.items()]

    async def begin(self) -> None:
        """List everything once."""
        for informer in self.informers:
            await informer.begin()

    def _informer(self, api: Api, path: str, kept: Kept) -> Informer:
        def listed(values: list[Json]) -> None:
            kept.clear()
            for value in values:
                self._do(kept.put, value)

        def changed(changes: list[Json]) -> None:
            for change in changes:
                self._do(kept.drop if change["type"] == "DELETED" else kept.put, change["object"])

        return Informer(api, path, listed, changed)

    def _do(self, act: Callable[[Json], None], value: Json) -> None:
        """Take an object in; one that makes no sense is left out."""
        try:
            act(value)
        except NONSENSE as error:
            log.debug("an object can't be read and was left out", extra={"why": str(error)[:200]})
        self._world.version += 1
