"""The part of a manager's settings that is about GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from rota.files.durations import Seconds
from rota.files.shape import FileModel

Percent = Annotated[float, Field(ge=0, le=100)]
PerKwh = Annotated[float, Field(ge=0, le=1e6)]


class IdlePart(FileModel):
    """When a job's GPUs count as idle, and what follows."""

    below: Percent = 0.0
    for_: Annotated[Seconds, Field(alias="for", gt=0)] = 1800.0
    then: Literal["warn", "suspend", "stop"] = "warn"
    after: Seconds = 600.0


class GpuPart(FileModel):
    """How GPUs are watched, limited and shared."""

    nvml: Path | None = None
    memory_limit: Literal["end", "off"] = "end"
    memory_grace: Seconds = 5.0
    sample: Annotated[Seconds, Field(le=3600)] = 1.0
    energy_price: PerKwh | None = None
    currency: Annotated[str, Field(max_length=8)] = ""
    carbon: PerKwh | None = None
    idle: IdlePart = IdlePart()
    mps: Literal["off", "packed", "all"] = "off"
    bound: Annotated[float, Field(ge=0, lt=1)] = 0.0
