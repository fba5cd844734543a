"""Checked access to the fields of a parsed JSON object: each mistake is one line that names file, place and field."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError, did_you_mean

MOST_NUMBER = 1e18
"""Larger numbers are mistakes; sums of them would lose their digits."""


class JsonFields:
    """One JSON object with the words that say where it stands."""

    def __init__(self, value: object, place: str, known: Iterable[str]) -> None:
        if not isinstance(value, Mapping):
            raise RotaError(f"{place}: expected an object with fields, found {_shown(value)}")
        names = list(known)
        for name in value:
            if name not in names:
                raise RotaError(f"{place}: unknown field {name!r}; {did_you_mean(str(name), names)}")
        self._value = value
        self.place = place

    def __contains__(self, name: str) -> bool:
        return self._value.get(name) is not None

    def raw(self, name: str) -> Any:
        """A field that must be there, of any kind."""
        if name not in self._value:
            raise RotaError(f"{self.place}: field {name!r} is missing")
        return self._value[name]

    def number(self, name: str, default: float | None = None, *, least: float = 0.0) -> float:
        """A finite number that is not below `least`."""
        if name not in self and default is not None:
            return default
        value = self.raw(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not -MOST_NUMBER <= value <= MOST_NUMBER:
            raise RotaError(f"{self.place}: {name} must be a number of at most {MOST_NUMBER:g}, found {_shown(value)}")
        if value < least:
            raise RotaError(f"{self.place}: {name} is {value:g}; it must be {least:g} or more")
        return float(value)

    def size(self, name: str, default: float | None = None) -> float:
        """A size in any unit: parts of it count, and whole ones stay integers."""
        value = self.number(name, default)
        return int(value) if value == int(value) else value

    def count(self, name: str, default: int | None = None, *, least: int = 0) -> int:
        """A whole number that is not below `least`."""
        value = self.number(name, default, least=least)
        if value != int(value):
            raise RotaError(f"{self.place}: {name} is {value:g}; it must be a whole number")
        return int(value)

    def flag(self, name: str, default: bool | None = None) -> bool:
        """True or false, also as 0 or 1."""
        if name not in self and default is not None:
            return default
        value = self.raw(name)
        if not isinstance(value, bool) and value not in (0, 1):
            raise RotaError(f"{self.place}: {name} must be true or false, found {_shown(value)}")
        return bool(value)

    def text(self, name: str, default: str | None = None) -> str:
        """A text that is not empty."""
        if name not in self and default is not None:
            return default
        value = self.raw(name)
        if not isinstance(value, str) or not value:
            raise RotaError(f"{self.place}: {name} must be a text, found {_shown(value)}")
        return value

    def items(self, name: str) -> list[Any]:
        """A list; an absent one is empty only where the caller asks `in` first."""
        value = self.raw(name)
        if not isinstance(value, list):
            raise RotaError(f"{self.place}: {name} must be a list, found {_shown(value)}")
        return value


def read_json(path: Path) -> Any:
    """The JSON of a file; a missing or broken file is one line."""
    try:
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_without_repeats)
    except OSError as err:
        raise RotaError(f"{path}: {err.strerror or err}") from err
    except RotaError as err:
        raise RotaError(f"{path}: {err}") from err
    except UnicodeDecodeError as err:
        raise RotaError(f"{path}: not a text file") from err
    except json.JSONDecodeError as err:
        raise RotaError(f"{path}: not JSON, line {err.lineno}: {err.msg}") from err
    except (RecursionError, ValueError) as err:
        raise RotaError(f"{path}: not JSON of a graph: nested too deeply, or a number with too many digits") from err


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        name = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise RotaError(f"field {name!r} is there twice in one object; remove one")
    return found


def write_json(path: Path, value: object) -> None:
    """Write a JSON value to a file; a file that cannot be written is one line."""
    try:
        path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    except OSError as err:
        raise RotaError(f"{path}: {err.strerror or err}") from err


def _shown(value: object) -> str:
    try:
        text = json.dumps(value, default=str)
    except (RecursionError, ValueError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= 40 else text[:37] + "..."
