"""Parameters of policies: dataclasses whose fields are read from `key=value` by their declared types."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rota.core.errors import RotaError, did_you_mean


@dataclass(frozen=True, slots=True)
class NoParams:
    """A policy without parameters."""


def parse_parameters(params: type, options: str, owner: str) -> Any:
    """An instance of a parameter class from `key=value,key=value`; other fields keep their defaults."""
    hints = typing.get_type_hints(params)
    names = [field.name for field in dataclasses.fields(params)]
    values: dict[str, Any] = {}
    for option in filter(None, options.split(",")):
        key, equals, text = option.partition("=")
        key = key.strip()
        if not equals:
            raise RotaError(f"{owner}: {option!r} is not KEY=VALUE")
        if key not in names:
            known = did_you_mean(key, names) if names else "it has none"
            raise RotaError(f"{owner} has no parameter {key!r}; {known}")
        if key in values:
            raise RotaError(f"{owner}: parameter {key!r} is given twice")
        try:
            values[key] = read_value(hints[key], text.strip())
        except ValueError:
            raise RotaError(f"{owner}: {key} is {text.strip()!r}; it must be {describe_type(hints[key])}") from None
    return params(**values)


def read_value(kind: Any, text: str) -> Any:
    """Read one value by its declared type; a list is written a/b/c."""
    if kind is bool:
        return _read_bool(text)
    if kind is int or kind is str:
        return kind(text)
    if kind is float:
        number = float(text)
        if math.isnan(number):
            raise ValueError(text)
        return number
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(text)
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        return tuple(read_value(item, part) for part in text.split("/"))
    if _is_optional(kind):
        inner = next(arg for arg in typing.get_args(kind) if arg is not type(None))
        return None if text in ("none", "") else read_value(inner, text)
    if _is_union(kind):
        return _read_one_of(typing.get_args(kind), text)
    raise TypeError(f"a parameter can't be of type {kind}")


def refuse_odd_weights(entities: tuple[str, ...], weights: tuple[float, ...], what: str) -> None:
    """Refuse entities without a finite number above 0 each, and entities that are named twice."""
    if len(entities) != len(weights):
        raise RotaError(f"entities are {len(entities)} and {what} {len(weights)}; give one each")
    twice = [name for at, name in enumerate(entities) if name in entities[:at]]
    if twice:
        raise RotaError(f"entities name {twice[0]!r} twice; give its {what} once")
    if not all(0 < weight < math.inf for weight in weights):
        raise RotaError(f"{what} must be finite numbers above 0")


def describe_type(kind: Any) -> str:
    """The type of a parameter, in words."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "one of " + ", ".join(member.value for member in kind)
    if typing.get_origin(kind) is tuple:
        return f"a list such as a/b/c, each {describe_type(typing.get_args(kind)[0])}"
    if _is_optional(kind):
        inner = next(arg for arg in typing.get_args(kind) if arg is not type(None))
        return f"{describe_type(inner)}, or none"
    if _is_union(kind):
        return ", or ".join(describe_type(arg) for arg in typing.get_args(kind)).replace("one of ", "")
    return {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[kind]


def show_value(value: Any) -> str:
    """A parameter's value as it is written on the command line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return "/".join(show_value(item) for item in value)
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)


def _read_bool(text: str) -> bool:
    if text.lower() in ("true", "yes", "on", "1"):
        return True
    if text.lower() in ("false", "no", "off", "0"):
        return False
    raise ValueError(text)


def _read_one_of(kinds: tuple[Any, ...], text: str) -> Any:
    for kind in kinds:
        try:
            return read_value(kind, text)
        except ValueError:
            continue
    raise ValueError(text)


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in (typing.Union, types.UnionType)


def _is_optional(kind: Any) -> bool:
    return _is_union(kind) and type(None) in typing.get_args(kind)
