"""The `tenants` section of a cluster file: guaranteed shares, limits, users, and the rules between tenants."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from rota.core.model.job import DeviceType, TenantId
from rota.core.model.tenants import ANY_TYPE, Share, TenantPlan
from rota.files.quantities import NotAQuantity, parse_duration
from rota.files.shape import FileModel


def _seconds(value: object) -> float:
    try:
        return parse_duration(value)
    except NotAQuantity as error:
        raise ValueError(str(error)) from error


def _by_type(value: object) -> object:
    """A plain number counts devices of all types."""
    return {ANY_TYPE: value} if isinstance(value, int) and not isinstance(value, bool) else value


Name = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(strict=True, ge=0)]
Amounts = Annotated[dict[Name, Count], BeforeValidator(_by_type, json_schema_input_type=int | dict[str, int])]
Seconds = Annotated[float, BeforeValidator(_seconds)]


class TenantEntry(FileModel):
    """One tenant. `gpus` and `limit` are numbers, or numbers by device type."""

    gpus: Amounts = {}
    limit: Amounts = {}
    parent: Name | None = None
    weight: float = 1.0
    per_user: Annotated[int, Field(strict=True, ge=1)] | None = None


class FairnessEntry(FileModel):
    """The rules between tenants."""

    half_life: Seconds = 7 * 86400.0
    min_run: Seconds = 0.0


def tenant_plan(tenants: dict[str, TenantEntry], fairness: FairnessEntry) -> TenantPlan:
    """The promises that the section makes."""
    return TenantPlan(
        shares={
            TenantId(name): Share(
                guaranteed={DeviceType(kind): amount for kind, amount in entry.gpus.items()},
                limit={DeviceType(kind): amount for kind, amount in entry.limit.items()},
                parent=None if entry.parent is None else TenantId(entry.parent),
                weight=entry.weight,
                per_user=entry.per_user,
            )
            for name, entry in tenants.items()
        },
        half_life_s=fairness.half_life,
        min_run_s=fairness.min_run,
    )
