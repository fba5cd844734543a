"""What a job asked for, what it will probably need, and what it used, side by side."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from rota.core.model.job import WHOLE, JobId
from rota.drivers.local.confinement.default_limits import DefaultLimits
from rota.drivers.local.task_usage import use_now
from rota.live.estimates.learning import Learning, in_units
from rota.live.estimates.past_use import FIELDS, asked_of, attributes, used_of
from rota.store.run_folder import gpu_usage, usage


async def compared(
    row: Any, home: Path, learning: Learning | None, defaults: DefaultLimits | None = None
) -> list[dict[str, Any]]:
    """A line for each resource that was asked for, limited, estimated or used; amounts are those of one task."""
    spec = json.loads(row.spec)
    asked = asked_of(spec)
    limits = {} if defaults is None else _limits(asked, defaults)
    used = await asyncio.to_thread(_used, row, spec, home)
    known = {} if learning is None else await learning.estimates(spec)
    lines = []
    for field in FIELDS:
        found = known.get(field)
        if not asked[field] and field not in used and found is None and field not in limits:
            continue
        estimate = {} if found is None else in_units(field, found)
        ours = (spec.get("estimated") or {}).get(field)
        lines.append(
            {
                "what": field,
                "asked": asked[field],
                "default": limits.get(field),
                "auto": ours is not None,
                "raised": 0 if ours is None else ours.get("raised", 0),
                "why": None if ours is None else ours.get("why"),
                "estimate": estimate.get("value"),
                "low": estimate.get("low"),
                "high": estimate.get("high"),
                "error": estimate.get("error"),
                "trusted": found is not None and learning is not None and found.is_trusted(learning.bound),
                "used": used.get(field),
            }
        )
    return lines


def _limits(asked: dict[str, float], defaults: DefaultLimits) -> dict[str, float]:
    """The limits of a task for what it did not ask for."""
    device_milli = round(asked["gpus"] * WHOLE)
    found = {"cpus": defaults.cpus(device_milli) / 1000, "memory": float(defaults.memory(device_milli))}
    return {field: limit for field, limit in found.items() if limit and not asked[field]}


def _used(row: Any, spec: dict[str, Any], home: Path) -> dict[str, float]:
    """What a task used, in the end or so far."""
    tasks = attributes(spec)["tasks"]
    assert isinstance(tasks, float)
    ended = usage(home, JobId(row.id), row.attempt)
    if ended is not None and row.started_s is not None and row.ended_s is not None:
        run_s = max(row.ended_s - row.started_s, 1e-3)
        return used_of(ended, run_s, tasks)
    now = use_now(home, JobId(row.id), row.attempt)
    if now is None:
        return {}
    seen = gpu_usage(home, JobId(row.id), row.attempt)
    gpus = {"gpus": seen["gpus"], "gpu_memory": seen["gpu_memory_now_bytes"]} if seen else {}
    return {"memory": now.memory_bytes / now.tasks, **gpus}
