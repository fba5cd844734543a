"""PersistentVolumes, their claims, StorageClasses and CSINodes as the filters take them. Nonsense is left out."""

from __future__ import annotations

from typing import Any

from rota.core.model.labels import Requirement, Terms
from rota.drivers.kubernetes.api.quantity import whole
from rota.drivers.kubernetes.filters.selectors import selector_of
from rota.drivers.kubernetes.filters.volume_facts import NO_PROVISIONER, StorageKind, Volume, VolumeClaim
from rota.drivers.kubernetes.objects.pod_needs import requirements

Json = dict[str, Any]
SELECTED = "volume.kubernetes.io/selected-node"
COMPLETED = "pv.kubernetes.io/bind-completed"
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
_NOT_A_SOURCE = frozenset(
    {
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    }
)


def claim_of(value: Json) -> VolumeClaim:
    """Parse a PersistentVolumeClaim."""
    meta, spec, status = value["metadata"], value.get("spec") or {}, value.get("status") or {}
    notes = meta.get("annotations") or {}
    return VolumeClaim(
        namespace=str(meta["namespace"]),
        name=str(meta["name"]),
        uid=str(meta.get("uid", "")),
        bytes_wanted=whole(str(((spec.get("resources") or {}).get("requests") or {}).get("storage", "0"))),
        storage_class=_class_of(notes, spec),
        access_modes=frozenset(map(str, spec.get("accessModes") or ())),
        is_block=spec.get("volumeMode") == "Block",
        selector=selector_of(spec.get("selector")),
        volume=str(spec.get("volumeName") or ""),
        is_bound=bool(spec.get("volumeName")) and COMPLETED in notes,
        is_lost=status.get("phase") == "Lost",
        ending=meta.get("deletionTimestamp") is not None,
        selected_node=str(notes.get(SELECTED, "")),
    )


def _class_of(notes: Json, spec: Json) -> str:
    return str(notes.get(_OLD_CLASS, spec.get("storageClassName") or ""))


def volume_of(value: Json) -> Volume:
    """Parse a PersistentVolume."""
    meta, spec = value["metadata"], value.get("spec") or {}
    held = spec.get("claimRef") or {}
    csi = spec.get("csi") or {}
    required = (spec.get("nodeAffinity") or {}).get("required") or {}
    return Volume(
        name=str(meta["name"]),
        capacity_bytes=whole(str((spec.get("capacity") or {}).get("storage", "0"))),
        storage_class=_class_of(meta.get("annotations") or {}, spec),
        access_modes=frozenset(map(str, spec.get("accessModes") or ())),
        is_block=spec.get("volumeMode") == "Block",
        labels={str(key): str(text) for key, text in (meta.get("labels") or {}).items()},
        node_terms=tuple(tuple(requirements(term)) for term in required.get("nodeSelectorTerms") or ()),
        phase=str((value.get("status") or {}).get("phase") or "Pending"),
        ending=meta.get("deletionTimestamp") is not None,
        claim=(str(held.get("namespace")), str(held.get("name"))) if held else None,
        claim_uid=str(held.get("uid", "")),
        driver=str(csi.get("driver", "")),
        handle=str(csi.get("volumeHandle", "")),
        kind=next((str(name) for name in spec if name not in _NOT_A_SOURCE), ""),
    )


def kind_of(value: Json) -> StorageKind:
    """Parse a StorageClass."""
    return StorageKind(
        name=str(value["metadata"]["name"]),
        provisioner=str(value.get("provisioner") or NO_PROVISIONER),
        waits=value.get("volumeBindingMode") == "WaitForFirstConsumer",
        topologies=_topologies(value.get("allowedTopologies") or ()),
    )


def _topologies(values: Any) -> Terms:
    return tuple(
        tuple(
            Requirement(str(each["key"]), "In", tuple(map(str, each.get("values") or ())))
            for each in term.get("matchLabelExpressions") or ()
        )
        for term in values
    )


def limits_of(value: Json) -> dict[str, int]:
    """Return how many volumes of each driver a CSINode says that its node can attach."""
    found = {}
    for each in (value.get("spec") or {}).get("drivers") or ():
        count = (each.get("allocatable") or {}).get("count")
        if isinstance(count, int):
            found[str(each["name"])] = count
    return found
