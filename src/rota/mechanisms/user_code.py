"""The boundary to policies that users write: their functions are called here and their answers are checked.

A built-in policy is trusted and runs without these checks. A policy from a file or another package may return
anything, or raise; each such fault ends in one error that names the policy, the function and the value.
"""

from __future__ import annotations

import math
import numbers
import reprlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from rota.core.errors import RotaError, written
from rota.plugins import describe_error, raised_by_rota

Result = TypeVar("Result")

_LARGEST = 1e300
"""Finite numbers beyond this overflow when time is added to them."""
_SHOWN_CHARACTERS = 80
_DEEPEST = 100
"""Levels of lists and dicts that are kept; a value that contains itself has more."""


@dataclass(frozen=True, slots=True)
class UserCode:
    """A user's policy by the name that the command line gives it, such as `./mine.py:patient`."""

    policy: str

    def call(self, function: str, body: Callable[..., Result], *args: Any, **named: Any) -> Result:
        """Call a function of the policy; what it raises becomes an error that names the function and the line.

        A `RotaError` of Rota's code that the policy called, such as the draft, passes unchanged.
        """
        try:
            return body(*args, **named)
        except RotaError as error:
            if raised_by_rota(error):
                raise
            raise RotaError(f"policy {self.policy}: {function}(): {_message(error) or type(error).__name__}") from error
        except (Exception, SystemExit) as error:  # the code is the user's: any fault in it is theirs to read about
            raise RotaError(f"policy {self.policy}: {function}() raised {describe_error(error)}") from error

    def refuse(self, function: str, returned: object, expected: str) -> NoReturn:
        """Report an answer that can't be used."""
        raise RotaError(f"policy {self.policy}: {function}() returned {shown(returned)}; expected {expected}")

    def refuse_attribute(self, name: str, value: object, expected: str) -> NoReturn:
        """Report an attribute that can't be used."""
        raise RotaError(f"policy {self.policy}: {name} is {shown(value)}; expected {expected}")

    def attribute(self, rule: object, name: str) -> Any:
        """An attribute or property of a rule; a rule that lacks it, or whose property raises, is named."""
        try:
            return getattr(rule, name)
        except (Exception, SystemExit) as error:  # a property is the user's code too
            if raised_by_rota(error):
                raise
            raise RotaError(
                f"policy {self.policy}: {type(rule).__name__}.{name} can't be read: {describe_error(error)}"
            ) from error

    def require(self, rule: object, *functions: str, base: str) -> None:
        """Refuse a rule that lacks one of the functions that its family calls."""
        for name in functions:
            if not callable(getattr(rule, name, None)):
                raise RotaError(
                    f"policy {self.policy}: {type(rule).__name__} has no function {name}(); "
                    f"write it, or derive the class from {base}"
                )

    def moment(self, function: str, value: object, now_s: float) -> float:
        """The value as a moment after now, or infinity for never."""
        found = as_number(value)
        if found is None or found <= now_s:
            self.refuse(function, value, f"a time in seconds after now ({now_s:g}), or math.inf for never")
        return found

    def key(self, function: str, value: object, expected: str) -> tuple[float, ...]:
        """The value as a sort key: a tuple of numbers, none of them NaN."""
        found = as_numbers(value) if isinstance(value, tuple) and value else None
        if found is None:
            self.refuse(function, value, expected)
        return found

    def flag(self, function: str, value: object) -> bool:
        """The value as True or False."""
        if not isinstance(value, bool) and type(value).__name__ not in ("bool", "bool_"):
            self.refuse(function, value, "True or False")
        return bool(value)

    def memory(self, owner: str, value: object) -> Any:
        """The value if JSON can hold it."""
        if not is_plain(value):
            self.refuse_attribute(f"{owner}.memory", value, "None, numbers, text, lists or dicts of these")
        return value


def as_number(value: object) -> float | None:
    """The value as a number; None if it is NaN, no number, or finite and too large to calculate with."""
    if isinstance(value, float | int):
        number: float = value
    elif isinstance(value, numbers.Real):
        try:
            number = float(value)
        except Exception:  # too large for a float, or a number type of the user's that fails
            return None
    else:
        return None
    if number != number or (abs(number) > _LARGEST and number not in (math.inf, -math.inf)):
        return None
    return number


def as_numbers(values: Iterable[object]) -> tuple[float, ...] | None:
    """The values as numbers; None if one of them is not a number."""
    found = tuple(as_number(value) for value in values)
    return None if None in found else found  # type: ignore[return-value]  # mypy does not see that None is excluded


def as_count(value: object) -> int | None:
    """The value as a whole number; None if it is something else."""
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)
    return None


def is_plain(value: object) -> bool:
    """Whether JSON can hold a value; tuples count as lists. One that contains itself is not plain."""
    return _is_plain(value, _DEEPEST)


def _is_plain(value: object, levels: int) -> bool:
    if not levels:
        return False
    match value:
        case None | bool() | int() | str():
            return True
        case float():
            return not math.isnan(value)
        case list() | tuple():
            return all(_is_plain(item, levels - 1) for item in value)
        case dict():
            return all(isinstance(key, str | int) and _is_plain(item, levels - 1) for key, item in value.items())
    return False


def is_sequence(value: object, length: int) -> bool:
    """Whether a value is a list, tuple or array of this many items."""
    is_list = isinstance(value, Sequence) or hasattr(value, "__array__")
    return is_list and not isinstance(value, str | bytes) and hasattr(value, "__len__") and len(value) == length


def shown(value: object) -> str:
    """A value on one short line, with its type where the value alone does not tell it."""
    text = written(value)
    if len(text) > _SHOWN_CHARACTERS:
        text = (written(value, reprlib.repr) or text)[:_SHOWN_CHARACTERS]
    return text or f"a value of type {type(value).__name__}"


def _message(error: BaseException) -> str:
    return written(error, str)
