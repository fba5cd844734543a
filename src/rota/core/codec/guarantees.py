"""Guarantees of tenants as plain JSON values and back, for the header of a journal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.core.model.cells import CellEntry, CellPlan, CellType, Quota, SkuSize, TenantCells
from rota.core.model.tenants import Share, TenantPlan

Json = dict[str, Any]


def encode_cells(plan: CellPlan) -> Json:
    """Guarantees in cells as JSON values."""
    return {
        "types": {name: [kind.child, kind.children, kind.is_node] for name, kind in plan.types.items()},
        "physical": [_encode_entry(entry) for entry in plan.physical],
        "tenants": {
            name: {
                "cells": [[list(q.path or (q.chain, q.type)), q.cells] for q in own.quotas],
                "pinned": list(own.pinned),
            }
            for name, own in plan.tenants.items()
        },
        "skus": {name: [sku.gpu, sku.cpu_milli, sku.memory_bytes] for name, sku in plan.skus.items()},
    }


def decode_cells(value: Mapping[str, Any]) -> CellPlan:
    """Guarantees in cells from JSON values."""
    return CellPlan(
        types={
            name: CellType(child=child, children=children, is_node=is_node)
            for name, (child, children, is_node) in value["types"].items()
        },
        physical=tuple(_decode_entry(entry) for entry in value["physical"]),
        tenants={
            name: TenantCells(
                quotas=tuple(
                    Quota(chain=path[0], type=path[-1], cells=cells, path=tuple(path)) for path, cells in own["cells"]
                ),
                pinned=tuple(own["pinned"]),
            )
            for name, own in value["tenants"].items()
        },
        skus={
            name: SkuSize(gpu=gpu, cpu_milli=cpu, memory_bytes=memory)
            for name, (gpu, cpu, memory) in value["skus"].items()
        },
    )


def _encode_entry(entry: CellEntry) -> Json:
    value: Json = {"type": entry.type, "address": entry.address, "pinned": entry.pinned}
    if entry.children is not None:
        value["children"] = [_encode_entry(child) for child in entry.children]
    return {name: part for name, part in value.items() if part is not None}


def _decode_entry(value: Mapping[str, Any]) -> CellEntry:
    children = value.get("children")
    return CellEntry(
        type=value.get("type"),
        address=value.get("address"),
        pinned=value.get("pinned"),
        children=None if children is None else tuple(_decode_entry(child) for child in children),
    )


def encode_tenants(plan: TenantPlan) -> Json:
    """Guarantees by count as JSON values."""
    return {
        "half_life_s": plan.half_life_s,
        "min_run_s": plan.min_run_s,
        "shares": {
            name: {
                "guaranteed": dict(share.guaranteed),
                "limit": dict(share.limit),
                "parent": share.parent,
                "weight": share.weight,
                "per_user": share.per_user,
            }
            for name, share in plan.shares.items()
        },
    }


def decode_tenants(value: Mapping[str, Any]) -> TenantPlan:
    """Guarantees by count from JSON values."""
    return TenantPlan(
        half_life_s=value["half_life_s"],
        min_run_s=value["min_run_s"],
        shares={name: Share(**share) for name, share in value["shares"].items()},
    )
