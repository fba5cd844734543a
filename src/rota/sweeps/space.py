"""The parameters of a sweep and the values that they may take."""

from __future__ import annotations

import math
import random
import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

from rota.files.shape import FileModel
from rota.sweeps.trial import Params, Value

MOST_CHOICES = 1000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
Number = Annotated[float, Field(strict=False)]


def _number(value: object) -> object:
    """YAML 1.1 reads 1e-5 as text; a number that is written like one is taken as one."""
    if isinstance(value, str) and value.isascii() and "_" not in value:
        try:
            return float(value)
        except ValueError:
            return value
    return value


Bound = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False, ge=-1e18, le=1e18)]
Bounds = tuple[Bound, Bound]
_RANGES = ("uniform", "log", "int", "log_int")


class ParameterPart(FileModel):
    """One parameter: a range of numbers, or a choice of values."""

    uniform: Annotated[Bounds | None, Field(description="A number from low to high.")] = None
    log: Annotated[Bounds | None, Field(description="A number whose logarithm is uniform.")] = None
    int: Annotated[Bounds | None, Field(description="A whole number, both ends included.")] = None
    log_int: Annotated[Bounds | None, Field(description="A whole number whose logarithm is uniform.")] = None
    choice: Annotated[
        tuple[str | float | bool, ...] | None, Field(min_length=1, max_length=MOST_CHOICES, description="One of these.")
    ] = None
    points: Annotated[
        Annotated[float, Field(ge=1, le=MOST_CHOICES)] | None, Field(description="Values of a range in a grid.")
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, values: Any) -> Any:
        return {"choice": values} if isinstance(values, list | tuple) else values

    @model_validator(mode="after")
    def _agree(self) -> ParameterPart:
        given = [name for name in (*_RANGES, "choice") if getattr(self, name) is not None]
        if len(given) != 1:
            what = "none is given" if not given else f"these are given: {', '.join(given)}"
            raise ValueError(f"it needs one of {', '.join(_RANGES)} and choice; {what}")
        if self.choice is None:
            low, high = self.bounds
            if low > high:
                raise ValueError(f"{given[0]} is from {low:g} to {high:g}; it needs low <= high")
            if self.is_log and low <= 0:
                raise ValueError(f"{given[0]} begins at {low:g}; a logarithm needs numbers above 0")
            if self.is_whole and (low % 1 or high % 1):
                raise ValueError(f"{given[0]} is from {low:g} to {high:g}; both must be whole numbers")
        elif len(set(map(repr, self.choice))) < len(self.choice):
            raise ValueError("choice has a value twice")
        if self.points is not None and (self.choice is not None or self.points % 1):
            raise ValueError("points is how many values of a range a grid has: a whole number, without choice")
        return self

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest value of a range."""
        found = next(getattr(self, name) for name in _RANGES if getattr(self, name) is not None)
        return float(found[0]), float(found[1])

    @property
    def is_log(self) -> bool:
        """Whether its logarithm is what is uniform."""
        return self.log is not None or self.log_int is not None

    @property
    def is_whole(self) -> bool:
        """Whether it is a whole number."""
        return self.int is not None or self.log_int is not None

    def value_at(self, share: float) -> Value:
        """The value at a share of the range, from 0 to 1 exclusive, by its own measure."""
        if self.choice is not None:
            return plain(self.choice[min(math.floor(share * len(self.choice)), len(self.choice) - 1)])
        low, high = self.bounds
        if self.is_whole:
            return self._whole_at(share, low, high)
        if self.is_log:
            return min(max(math.exp(math.log(low) + math.log(high / low) * share), low), high)
        return min(max(low + (high - low) * share, low), high)

    def _whole_at(self, share: float, low: float, high: float) -> Value:
        """Each whole number has its own part of the range, from half below to half above it."""
        below, above = low - 0.5, high + 0.5
        found = below * (above / below) ** share if self.is_log else below + (above - below) * share
        return min(max(math.floor(found + 0.5), math.floor(low)), math.floor(high))

    def grid(self) -> list[Value]:
        """The values of a grid, in order; raises a `ValueError` for a range without `points`."""
        if self.choice is not None:
            return [plain(value) for value in self.choice]
        low, high = self.bounds
        if self.points is None:
            if self.is_whole and high - low < MOST_CHOICES and not self.is_log:
                return list(range(math.floor(low), math.floor(high) + 1))
            raise ValueError("a grid needs `points` for a range of numbers")
        count = math.floor(self.points)
        shares = [0.5] if count == 1 else [index / (count - 1) for index in range(count)]
        if self.is_log:
            found = [low * (high / low) ** share for share in shares]
        else:
            found = [low + (high - low) * share for share in shares]
        whole = [math.floor(value + 0.5) if self.is_whole else min(max(value, low), high) for value in found]
        return list(dict.fromkeys(whole))

    def holds(self, value: Value) -> bool:
        """Whether it may have a value."""
        if self.choice is not None:
            return any(plain(each) == value for each in self.choice)
        low, high = self.bounds
        return isinstance(value, float | int) and low <= value <= high and not (self.is_whole and value % 1)


def longest_text(part: ParameterPart) -> int:
    """Return the number of characters of a parameter's longest text."""
    return max((len(value) for value in part.choice or () if isinstance(value, str)), default=0)


def plain(value: str | float | bool) -> Value:
    """A choice as it is handed on: whole numbers as such."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def parameter_name(value: object) -> object:
    """A name that can be part of a variable's name; raises a `ValueError` for any other."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(f"not a parameter: {str(value)[:60]!r}; use letters, digits and underscores, no digit first")
    return value


class _ShortForm:
    """Describes the short form of a choice to editors: a list."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the forms of a parameter."""
        values = {"type": ["string", "number", "boolean"]}
        short = {"type": "array", "items": values, "minItems": 1, "maxItems": MOST_CHOICES}
        return {"anyOf": [handler(schema), short]}


Parameters = Annotated[
    dict[Annotated[str, BeforeValidator(parameter_name)], Annotated[ParameterPart, _ShortForm()]],
    Field(min_length=1, max_length=100),
]


def drawn(parameters: dict[str, ParameterPart], seed: int, number: int) -> Params:
    """The parameters of a trial at random: the same for the same seed and number, whatever was drawn before."""
    rng = random.Random(f"{seed}:{number}")
    return {name: part.value_at(rng.random()) for name, part in parameters.items()}
