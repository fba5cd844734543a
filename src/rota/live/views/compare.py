"""What a job asked for, what it will probably need, and what it used, side by side."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from rota.core.model.job import JobId
from rota.drivers.local.task_usage import use_now
from rota.live.estimates.learning import Learning, in_units
from rota.live.estimates.past_use import FIELDS, asked_of, attributes, used_of
from rota.store.run_folder import gpu_usage, usage


async def compared(row: Any, home: Path, learning: Learning | None) -> list[dict[str, Any]]:
    """A line for each resource that was asked for, estimated or used; amounts are those of one task."""
    spec = json.loads(row.spec)
    asked = asked_of(spec)
    used = await asyncio.to_thread(_used, row, spec, home)
    known = {} if learning is None else await learning.estimates(spec)
    lines = []
    for field in FIELDS:
        found = known.get(field)
        if not asked[field] and field not in used and found is None:
            continue
        estimate = {} if found is None else in_units(field, found)
        ours = (spec.get("estimated") or {}).get(field)
        lines.append(
            {
                "what": field,
                "asked": asked[field],
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
