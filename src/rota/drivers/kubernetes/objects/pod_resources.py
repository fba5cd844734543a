"""What a pod requests in all, as the kubelet counts it: sidecars, init containers, pod level, resizes, overhead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rota.drivers.kubernetes.api.quantity import milli, whole

Json = dict[str, Any]
Amounts = dict[str, int]
_POD_LEVEL = ("cpu", "memory")
HUGE_PAGES = "hugepages-"
_INFEASIBLE = "Infeasible"


def requests_of(spec: Json, status: Json | None = None) -> Amounts:
    """Return resources in thousandths.

    Containers and sidecars run together. An init container runs beside the sidecars that were started before it. A
    request at pod level takes the place of the sum. A resize that is under way counts as the larger of both sizes.
    """
    status = status or {}
    running = _Running(status)
    total: Amounts = {}
    for container in spec["containers"]:
        _add(total, running.requests(container))
    before: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            asked = running.requests(container, "initContainerStatuses")
            _add(total, asked)
            _add(before, asked)
            _raise(peak, before)
        else:
            alone = dict(before)
            _add(alone, _requests(container.get("resources")))
            _raise(peak, alone)
    _raise(total, peak)
    total |= _of_pod_level(spec, running)
    _add(total, _amounts(spec.get("overhead")))
    return total


class _Running:
    """What the kubelet has given to containers that run, which may differ from the spec during a resize."""

    def __init__(self, status: Json) -> None:
        self._status = status
        self._is_infeasible = any(
            each.get("type") == "PodResizePending" and each.get("reason") == _INFEASIBLE
            for each in status.get("conditions") or ()
        )

    def requests(self, container: Json, field: str = "containerStatuses") -> Amounts:
        """The requests of a container, or those that it still has."""
        asked = _requests(container.get("resources"))
        for each in self._status.get(field) or ():
            if each.get("name") == container.get("name"):
                return self.larger(asked, each)
        return asked

    def larger(self, asked: Amounts, given: Json) -> Amounts:
        """What counts of what is asked for and what was given."""
        has = _amounts((given.get("resources") or {}).get("requests"))
        _raise(has, _amounts(given.get("allocatedResources")))
        if not has:
            return asked
        found = dict(has)
        if not self._is_infeasible:
            _raise(found, asked)
        return {**asked, **found}

    def pod_level(self, asked: Amounts) -> Amounts:
        """The same for the pod as a whole."""
        return self.larger(asked, self._status)


def _of_pod_level(spec: Json, running: _Running) -> Amounts:
    asked = _requests(spec.get("resources"))
    if not asked:
        return {}
    asked = running.pod_level(asked)
    return {name: value for name, value in asked.items() if name in _POD_LEVEL or name.startswith(HUGE_PAGES)}


def _requests(resources: Json | None) -> Amounts:
    """Requests, and limits where there is no request."""
    if not resources:
        return {}
    return _amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _amounts(values: Mapping[str, object] | None) -> Amounts:
    return {name: _thousandths(name, text) for name, text in (values or {}).items()}


def _thousandths(name: str, text: object) -> int:
    return milli(str(text)) if name == "cpu" else whole(str(text)) * 1000


def _add(total: Amounts, more: Amounts) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise(total: Amounts, least: Amounts) -> None:
    for name, value in least.items():
        total[name] = max(total.get(name, 0), value)


def other_resources(asked: Mapping[str, int], counted: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Return the requests that neither the engine nor the kubelet's own limits count, sorted by name."""
    skipped = {"cpu", "memory", "pods", *counted}
    return tuple(sorted((name, value) for name, value in asked.items() if value and name not in skipped))
