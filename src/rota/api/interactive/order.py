"""What a client asks for in the first message of its session, checked field by field."""

from __future__ import annotations

from typing import Any

from rota.core.errors import RotaError
from rota.drivers.local.task_runner.interactive.frames import OPEN
from rota.files.json_input import parse_json

MOST_WORDS = 4096
MOST_TEXT = 64
_KINDS: dict[str, tuple[type, str]] = {
    "argv": (list, "a list of words"),
    "keys": (list, "a list of public keys"),
    "tty": (bool, "true or false"),
    "watch": (bool, "true or false"),
    "session": (str, "the name of a session"),
    "key": (str, "text"),
    "term": (str, "text"),
    "since": (int, "an offset of 0 or more"),
    "tail": (int, "a number of bytes of 0 or more"),
    "received": (int, "a number of bytes of 0 or more"),
    "size": (list, "rows and columns"),
}


def read_order(kind: bytes, payload: bytes) -> dict[str, Any]:
    """Return what to open, without fields that are null or unknown; raise a `RotaError` for what is no such order."""
    if kind != OPEN:
        raise RotaError("the first message must say what to open")
    found = parse_json(payload, "the first message", most_values=2 * MOST_WORDS)
    if not isinstance(found, dict):
        raise RotaError("the first message must be a mapping that says what to open")
    order = {name: found[name] for name in _KINDS if found.get(name) is not None}
    for name, value in order.items():
        if type(value) is not _KINDS[name][0] or not _is_fine(name, value):
            raise RotaError(f"{name}: it must be {_KINDS[name][1]}")
    return order


def _is_fine(name: str, value: Any) -> bool:
    if name == "size":
        return len(value) == 2 and all(type(each) is int for each in value)
    if isinstance(value, list):
        return len(value) <= MOST_WORDS and all(isinstance(each, str) for each in value)
    if isinstance(value, str):
        return len(value) <= MOST_TEXT
    return bool(value >= 0)
