"""What a submitted job file may not leave to interpretation.

A stored job file of an older version may hold such values and is still read; this is checked when a job is submitted,
beside the shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError
from rota.files.quantities import NotAQuantity, parse_bytes

LEAST_MEMORY = 1 << 20
"""No task runs with less: a smaller number lacks its unit."""
_FLAGS = ("gang", "exclusive", "preemptible", "tolerate_suspects")
_AMOUNTS = ("memory", "gpu_memory")


def refuse_ambiguous(values: Mapping[str, Any], source: Path | str = "job") -> None:
    """Raise a `RotaError` that names a value which could only be taken by a guess."""
    for fault in _faults(values):
        raise RotaError(f"{source}: {fault}")


def _faults(values: Mapping[str, Any]) -> Iterator[str]:
    for name in _FLAGS:
        yield from _flag(name, values.get(name))
    locality = values.get("locality")
    if isinstance(locality, dict):
        yield from _flag("locality.hard", locality.get("hard"))
    yield from _command("run", values.get("run"))
    yield from _part("resources.", values.get("resources"))
    roles = values.get("roles")
    for name, role in roles.items() if isinstance(roles, dict) else ():
        yield from _part(f"roles.{name}.", role)
        if isinstance(role, dict):
            yield from _command(f"roles.{name}.run", role.get("run"))


def _flag(field: str, value: object) -> Iterator[str]:
    if value is not None and not isinstance(value, bool):
        yield f"{field} is {_short(value)}; it must be true or false"


def _command(field: str, value: object) -> Iterator[str]:
    program = value[0] if isinstance(value, list | tuple) and value else value
    if isinstance(program, str) and not program.strip():
        yield f"{field} is {_short(value)}; say what to run"
    elif value is not None and not isinstance(value, str | list | tuple):
        yield f"{field} is {_short(value)}; it must be text or a list"


def _part(field: str, part: object) -> Iterator[str]:
    for name in _AMOUNTS if isinstance(part, dict) else ():
        assert isinstance(part, dict)
        try:
            amount = LEAST_MEMORY if part.get(name) in (None, "auto") else parse_bytes(part[name])
        except NotAQuantity:  # the shape says so
            continue
        if amount == 0:
            yield f"{field}{name} is {_short(part[name])}; leave it out if there is no limit, or write it like 40Gi"
        elif amount < LEAST_MEMORY:
            yield f"{field}{name} is {_short(part[name])}, which is {amount} bytes; add the unit, like 40Gi"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
