"""Follows the ConfigMap and the objects of Rota, and makes settings of them. A mistake changes nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from rota.drivers.kubernetes.api.client import Api, ApiRefused, MissingRight
from rota.drivers.kubernetes.api.informer import Informer
from rota.drivers.kubernetes.objects.reading import NONSENSE
from rota.drivers.kubernetes.resources.reading import Merged, ResourceKey, key_of_resource, merged
from rota.drivers.kubernetes.resources.status import PLURALS
from rota.drivers.kubernetes.resources.types import API
from rota.drivers.kubernetes.settings import KEY, ClusterSettings, read_settings

log = logging.getLogger("rota.drivers.kubernetes")
Json = dict[str, Any]
UNUSABLE = "the settings can't be used; they stay as they were"
Check = Callable[[ClusterSettings], None]


class SettingsFollower:
    """The present settings. `changed` is set when they become others."""

    def __init__(self, given: ClusterSettings, check: Check) -> None:
        self._base = given
        self._check = check
        self._values: dict[ResourceKey, Json] = {}
        self._was: ClusterSettings | None = None
        self.settings = given
        self.refused: dict[ResourceKey, str] = {}
        """Why objects are not used."""
        self.changed = asyncio.Event()

    @property
    def values(self) -> list[Json]:
        """The objects."""
        return list(self._values.values())

    async def config_map(self, api: Api, namespace: str, name: str) -> Informer:
        """Return the informer of the ConfigMap, after its first list."""
        informer = Informer(
            api,
            f"/api/v1/namespaces/{namespace}/configmaps",
            lambda values: self._configured(values, name),
            lambda changes: self._configured([each["object"] for each in changes if each["type"] != "DELETED"], name),
            fieldSelector=f"metadata.name={name}",
        )
        await informer.begin()
        return informer

    async def resources(self, api: Api) -> list[Informer]:
        """Return the informers of the kinds that the cluster has, after their first lists."""
        try:
            served = {each["name"] for each in (await api.get(API))["resources"]}
        except ApiRefused as error:
            if error.status != 404:
                raise
            served = set()
        made = []
        for kind, plural in PLURALS.items():
            if plural in served:
                informer = Informer(api, f"{API}/{plural}", self._listed(kind), self._changes(kind))
                try:
                    await informer.begin()
                    made.append(informer)
                except MissingRight as error:
                    log.warning("objects of this type have no effect", extra={"kind": kind, "why": str(error)})
            else:
                log.warning("the cluster does not have this type; `rota k8s install` makes it", extra={"kind": kind})
        return made

    def fall_back(self, settings: ClusterSettings) -> None:
        """Return to settings that could be used; the present ones could not."""
        self.settings = settings

    def _configured(self, values: list[Json], name: str) -> None:
        for value in values:
            try:
                text = str((value.get("data") or {}).get(KEY, ""))
                settings = read_settings(text, f"ConfigMap {name}: {KEY}")
                self._check(settings)
            except NONSENSE as error:
                log.error(UNUSABLE, extra={"why": str(error)[:1000]})
            else:
                self._base = settings
                self._merge()

    def _listed(self, kind: str) -> Callable[[list[Json]], None]:
        def replace(values: list[Json]) -> None:
            for key in [key for key in self._values if key.kind == kind]:
                del self._values[key]
            for value in values:
                value = {**value, "kind": kind}
                self._values[key_of_resource(value)] = value
            self._merge()

        return replace

    def _changes(self, kind: str) -> Callable[[list[Json]], None]:
        def change(changes: list[Json]) -> None:
            for each in changes:
                value = {**each["object"], "kind": kind}
                if each["type"] == "DELETED":
                    self._values.pop(key_of_resource(value), None)
                else:
                    self._values[key_of_resource(value)] = value
            self._merge()

        return change

    def _merge(self) -> None:
        found = self._usable(merged(self._base, self._values.values()))
        self.refused = found.refused
        if found.settings != self._was:
            is_first = self._was is None and found.settings == self.settings
            self._was = self.settings = found.settings
            if not is_first:
                self.changed.set()
                about = {"policy": found.settings.policy, "tenancy": found.settings.tenancy}
                log.info("settings changed", extra=about)

    def _usable(self, found: Merged) -> Merged:
        """Return the settings if they pass the check, else those without a SchedulingPolicy, then the ConfigMap's."""
        if found.settings == self._was:
            return found
        refused: dict[ResourceKey, str] = {}
        left = dict(self._values)
        for kind in ("SchedulingPolicy", "Queue", "Topology"):
            try:
                self._check(found.settings)
            except NONSENSE as error:
                wrong = [key for key in left if key.kind == kind]
                refused |= {key: str(error)[:1000] for key in wrong}
                for key in wrong:
                    del left[key]
                found = merged(self._base, left.values())
            else:
                break
        found.refused = {**found.refused, **refused}
        return found
