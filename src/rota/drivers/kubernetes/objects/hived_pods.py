"""Pods for HiveD: its annotation names tenant, priority, devices and gang."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from rota.core.errors import RotaError
from rota.drivers.kubernetes.objects.pod_annotations import DEVICES, PREFIX
from rota.files.yaml_input import parse_yaml

HIVED = "hivedscheduler.microsoft.com/"
REQUEST = HIVED + "pod-scheduling-spec"
"""The annotation with the pod's request."""
ISOLATION = HIVED + "pod-leaf-cell-isolation"
"""The annotation with the pod's devices."""
BIND_INFO = HIVED + "pod-bind-info"
MOST_VALUES = 1000
"""Values in the annotation; one with a group of many members has some hundred."""
MOST_COUNTED = 100_000
ENABLE = HIVED + "pod-scheduling-enable"
"""The extended resource that routes pods to the extender; it is not counted."""


def notes_of(annotations: Mapping[str, str], pod: str) -> dict[str, str]:
    """HiveD's annotation translated into Rota's annotations; a mistake names the field."""
    asked = parse_yaml(annotations[REQUEST], REQUEST, most_values=MOST_VALUES)
    if not isinstance(asked, dict):
        raise RotaError(f"{REQUEST}: it must be a mapping of fields to values")
    devices = _count(asked, "leafCellNumber", "gpuNumber")
    notes = {
        PREFIX + "tenant": _text(asked, "virtualCluster"),
        PREFIX + "priority": str(_number(asked, "priority")),
        PREFIX + "gpus": str(devices),
        PREFIX + "lazy-preemption": "true" if asked.get("lazyPreemptionEnable") else "",
        PREFIX + "pinned-cell": str(asked.get("pinnedCellId") or asked.get("reservationId") or ""),
        PREFIX + "gpu": str(asked.get("leafCellType") or asked.get("gpuType") or ""),
    }
    group = asked.get("affinityGroup")
    if group is not None and not isinstance(group, dict):
        raise RotaError(f"{REQUEST}: affinityGroup is {str(group)[:60]!r}; it must be a mapping of fields to values")
    if group:
        members = group.get("members") or []
        if not isinstance(members, list) or not all(isinstance(member, dict) for member in members):
            raise RotaError(f"{REQUEST}: affinityGroup.members must be a list of mappings")
        notes[PREFIX + "job"] = str(group.get("name") or pod)
        notes[PREFIX + "tasks"] = str(sum(_count(member, "podNumber") for member in members))
    return {name: value for name, value in notes.items() if value}


def hived_annotations(annotations: Mapping[str, str], node: str) -> dict[str, str]:
    """Return HiveD's annotations for a bound pod."""
    devices = annotations[DEVICES]
    isolation = [int(index) for index in devices.split(",") if index]
    return {ISOLATION: devices, BIND_INFO: yaml.safe_dump({"node": node, "leafCellIsolation": isolation})}


def _text(asked: Mapping[str, Any], field: str) -> str:
    value = asked.get(field)
    if not isinstance(value, str) or not 0 < len(value) <= 253:
        raise RotaError(f"{REQUEST}: {field} is {f'{value!r:.60}'}; it must be a name")
    return value


def _number(asked: Mapping[str, Any], field: str) -> int:
    value = asked.get(field, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value <= 1000:
        raise RotaError(f"{REQUEST}: {field} is {f'{value!r:.60}'}; it must be a number from -1 to 1000")
    return value


def _count(asked: Mapping[str, Any], *fields: str) -> int:
    value = next((asked[field] for field in fields if field in asked), None)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_COUNTED:
        raise RotaError(f"{REQUEST}: {fields[0]} is {f'{value!r:.60}'}; it must be a number of 1 or more")
    return value
