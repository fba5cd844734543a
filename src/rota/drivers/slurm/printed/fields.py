"""The little languages inside Slurm's output: numbers, lists of hosts, trackable resources, GPUs with their indexes.

Releases differ: a number is `5`, `null` or `{"set": true, "infinite": false, "number": 5}`, a state is a word or a list
of words. All of that is settled here, so that no other module knows it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

MEBI = 2**20
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)([KMGTPEZ?]?)")
_NO_AMOUNT = ("E", "Z", "?")
"""Units in which Slurm prints that memory has no bound (`mem=16E`, `8?`), as where it is not given out."""
_UNITS = {"K": 2**10, "": 2**20, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}
_GPU = re.compile(r"(?:gres[:/])?gpu(?::(?P<type>[^:=(]+))??(?:[:=](?P<count>\d+))?(?:\((?P<more>.*)\))?")
_MOST_HOSTS = 100_000
_UNBOUNDED = (0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFE)
"""How binary fields say "no limit" or "not set"; some releases print them as they are."""


class BadField(ValueError):
    """A value of Slurm's output that can't be understood."""


@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs of one node: how many, of which type ("" if none is named), and their indexes where Slurm says them."""

    count: int
    type: str = ""
    mask: int = 0


def number(value: Any) -> float | None:
    """Return a number; None where it is not set or has no bound."""
    if isinstance(value, dict):
        if not value.get("set", False) or value.get("infinite", False):
            return None
        value = value.get("number")
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise BadField(f"{value!r} is not a number")
    try:
        found = float(value)
    except ValueError:
        raise BadField(f"{value!r} is not a number") from None
    except OverflowError:
        raise BadField("a number is too large") from None
    if not math.isfinite(found):
        raise BadField(f"{value!r} is not a finite number")
    return None if found in _UNBOUNDED else found


def whole(value: Any, default: int = 0) -> int:
    """Return a whole number; `default` where it is not set."""
    found = number(value)
    if found is None:
        return default
    return int(found)


def text(value: Any) -> str:
    """Return a text; empty where there is none."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadField(f"{value!r} is not a text")
    return "" if value in ("(null)", "N/A", "None assigned") else value


def words(value: Any) -> tuple[str, ...]:
    """Return words: of a list, of `a,b` or of `A+B`; in the case in which they are written."""
    if value is None:
        return ()
    if isinstance(value, str):
        return tuple(word for word in re.split(r"[,+]", value) if word)
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return tuple(value)
    raise BadField(f"{value!r} is not a list of words")


def hosts(value: str) -> tuple[str, ...]:
    """Return the names of a list of hosts: `n[1-3,7],login` and several ranges in one name, with leading zeros."""
    found: list[str] = []
    for part in _split_outside(value):
        for name in _expand(part):
            found.append(name)
            if len(found) > _MOST_HOSTS:
                raise BadField(f"{value[:60]!r} names more than {_MOST_HOSTS} hosts")
    return tuple(found)


def _split_outside(value: str) -> list[str]:
    """Split at commas that are not within brackets."""
    parts, depth, begin = [], 0, 0
    for at, sign in enumerate(value):
        depth += (sign == "[") - (sign == "]")
        if depth not in (0, 1):
            raise BadField(f"{value[:60]!r} is not a list of hosts")
        if sign == "," and not depth:
            parts.append(value[begin:at])
            begin = at + 1
    if depth:
        raise BadField(f"{value[:60]!r} is not a list of hosts")
    parts.append(value[begin:])
    return [part for part in parts if part]


def _expand(part: str) -> list[str]:
    head, bracket, rest = part.partition("[")
    if not bracket:
        return [part]
    inside, _, tail = rest.partition("]")
    ends = _expand(tail)
    names = []
    for piece in inside.split(","):
        first, dash, last = piece.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise BadField(f"{part[:60]!r} is not a list of hosts")
        low, high = int(first), int(last or first)
        if high < low or (high - low + 1) * len(ends) > _MOST_HOSTS:
            raise BadField(f"{part[:60]!r} is not a list of hosts")
        names += [f"{head}{each:0{len(first)}d}{end}" for each in range(low, high + 1) for end in ends]
    return names


def indexes(value: str) -> tuple[int, ...]:
    """Return the numbers of `0-2,5`, of an array's `1-9:2` and of `1-5%2`, whose limit is not an index."""
    found: list[int] = []
    for piece in value.partition("%")[0].split(","):
        if not piece:
            continue
        span, _, step = piece.partition(":")
        first, dash, last = span.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (step and not step.isdecimal()):
            raise BadField(f"{value[:60]!r} is not a list of numbers")
        low, high, by = int(first), int(last or first), int(step or 1)
        if by < 1 or high < low or (high - low) // by > _MOST_HOSTS:
            raise BadField(f"{value[:60]!r} is not a list of numbers")
        found += range(low, high + 1, by)
    return tuple(found)


def tres(value: str) -> dict[str, str]:
    """Return trackable resources by name: `cpu=4,mem=4M,gres/gpu:a100=2`."""
    found = {}
    for part in value.split(","):
        name, equals, amount = part.partition("=")
        if part and not equals:
            raise BadField(f"{value[:60]!r} is not a list of resources")
        if part:
            found[name] = amount
    return found


def tres_gpus(resources: dict[str, str]) -> Gpus:
    """Return the GPUs among resources; the untyped count is the whole where both are given."""
    total, typed = 0, {}
    for name, amount in resources.items():
        kind, _, device_type = name.partition(":")
        if kind not in ("gres/gpu", "gpu") or not amount.isdecimal():
            continue
        if device_type:
            typed[device_type] = int(amount)
        else:
            total = int(amount)
    return Gpus(total or sum(typed.values()), next(iter(typed)) if len(typed) == 1 else "")


def memory_bytes(value: str) -> int:
    """Return an amount of memory: `4M`, `1.50G`; without a unit in mebibytes; 0 where there is no bound."""
    if not value:
        return 0
    found = _MEMORY.fullmatch(value)
    if found is None:
        raise BadField(f"{value!r} is not an amount of memory")
    return 0 if found[2] in _NO_AMOUNT else int(float(found[1]) * _UNITS[found[2]])


def gres(value: str) -> Gpus:
    """Return the GPUs of a node's or a job's GRES: `gpu:a100:4`, `gpu:2(IDX:0-1)`, `gpu:v100:4(S:0-1),nic:1`."""
    count, device_type, mask = 0, "", 0
    for part in _split_gres(value):
        found = _GPU.fullmatch(part)
        if found is None:
            continue
        count += int(found["count"] or 1)
        device_type = device_type or found["type"] or ""
        more = found["more"] or ""
        if more.startswith("IDX:") and more != "IDX:N/A":
            for index in indexes(more[4:]):
                if index >= 4096:
                    raise BadField(f"{value[:60]!r}: index {index} of a GPU")
                mask |= 1 << index
    return Gpus(count, device_type, mask)


def gpu_types(value: str) -> tuple[str, ...]:
    """Return the types of the GPUs among a node's GRES, each once: `a100` and `v100` of `gpu:a100:2,gpu:v100:2`."""
    found = [part["type"] for part in map(_GPU.fullmatch, _split_gres(value)) if part is not None and part["type"]]
    return tuple(dict.fromkeys(found))


def _split_gres(value: str) -> list[str]:
    """Split at commas that are not within parentheses."""
    return [part for part in re.split(r",(?![^(]*\))", value) if part]
