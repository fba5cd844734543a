"""Checks plain values against a pydantic model and says what is wrong in one line a user can act on."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, TypeVar, Union, get_args, get_origin

from pydantic import AliasChoices, BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from rota.core.errors import RotaError, did_you_mean

_WAYS_OUT = {
    "int_type": "it must be a whole number",
    "int_from_float": "it must be a whole number",
    "int_parsing": "it must be a whole number",
    "float_type": "it must be a number",
    "float_parsing": "it must be a number",
    "finite_number": "it must be a finite number",
    "string_type": "it must be text",
    "string_too_short": "it must not be empty",
    "tuple_type": "it must be a list",
    "list_type": "it must be a list",
    "too_short": "it must not be empty",
    "dict_type": "it must be a mapping of names to values",
    "bool_type": "it must be true or false",
    "model_type": "it must be a mapping of fields to values",
}

ModelT = TypeVar("ModelT", bound=BaseModel)
MOST_PROBLEMS = 500
"""Problems of one document that are looked at: a sentence names one of them, and how many there are."""


class FileModel(BaseModel):
    """The base of everything that is read from a file: unknown fields are refused, nothing changes later.

    Numbers will do as names (`rack: 1`), since YAML reads them as numbers; nothing else is converted.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)


def checked(model: type[ModelT], values: object, path: Path) -> ModelT:
    """The values as a model, or a one-line error naming the file, the field, the value and the way out."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise RotaError(f"{path}: {_summary(error, model)}") from error


def _summary(error: ValidationError, model: type[BaseModel]) -> str:
    problems = error.errors(include_url=False)[:MOST_PROBLEMS]
    at_least = "at least " if error.error_count() > MOST_PROBLEMS else ""
    # A list whose only item is wrong is also reported as empty: the item says more.
    outer = {problem["loc"][:depth] for problem in problems for depth in range(len(problem["loc"]))}
    inner = [problem for problem in problems if problem["loc"] not in outer]
    # A misspelt field is also a missing one: the misspelling says more.
    inner.sort(key=lambda problem: problem["type"] != "extra_forbidden")
    # A value that may be of several forms is reported once for each of them: one sentence names them all.
    first = _place(inner[0]["loc"])
    same = [problem for problem in inner if _place(problem["loc"]) == first]
    others = len({_place(problem["loc"]) for problem in inner}) - 1
    more = f" (and {at_least}{others} more)" if others else ""
    ways = [_WAYS_OUT[problem["type"]] for problem in same if problem["type"] in _WAYS_OUT]
    if len(same) > 1 and len(ways) == len(same):
        rest = [way.removeprefix("it must be ") for way in dict.fromkeys(ways)]
        return f"{field_path(first)} is {_quoted(same[0]['input'])}; it must be {' or '.join(rest)}{more}"
    return f"{_sentence(same[0], model)}{more}"


def _place(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Where a value stands, without the names of the forms that it might have."""
    forms = _forms(len(FileModel.__subclasses__()))
    return tuple(part for part in loc if isinstance(part, int) or not ("[" in part or part in forms))


@cache
def _forms(known: int) -> frozenset[str]:
    """The names of forms; `known` is how many models there are by now."""
    return frozenset({"str", "int", "float", "bool", *(kind.__name__ for kind in FileModel.__subclasses__())})


def _sentence(problem: ErrorDetails, model: type[BaseModel]) -> str:
    loc = problem["loc"]
    field = field_path(_place(loc))
    match problem["type"]:
        case "extra_forbidden":
            return f"unknown field {field}; {did_you_mean(str(loc[-1]), _known_fields(model, loc[:-1]))}"
        case "missing":
            return f"{field} is missing; add it"
        case "value_error":
            return f"{field}: {problem['ctx']['error']}"
        case "greater_than_equal":
            way_out = f"it must be at least {problem['ctx']['ge']}"
        case kind:
            way_out = _WAYS_OUT.get(kind, problem["msg"])
    return f"{field} is {_quoted(problem['input'])}; {way_out}"


def field_path(loc: tuple[int | str, ...]) -> str:
    """Where a value stands, as people write it: `nodes[2].gpus`."""
    parts = [
        f"[{part}]" if isinstance(part, int) else f".{part if len(part) <= 60 else part[:57] + '...'}" for part in loc
    ]
    return "".join(parts).removeprefix(".") or "the file"


def _quoted(value: object) -> str:
    if value is None:
        return "empty"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _known_fields(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """The fields of the model that stands at this place in the file."""
    kind: object = model
    for part in _place(loc):
        models = _models(kind)
        if models:
            kind = next((f.annotation for each in models for name, f in _fields(each) if name == str(part)), None)
        elif args := get_args(kind):
            kind = args[0] if isinstance(part, int) else args[-1]
    return list(dict.fromkeys(name for each in _models(kind) for name, _ in _fields(each)))


def _models(kind: object) -> list[type[BaseModel]]:
    """The models among the forms that a value may have."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    origin = get_origin(kind)
    if origin is Annotated:
        return _models(get_args(kind)[0])
    return [each for form in get_args(kind) for each in _models(form)] if origin in (Union, UnionType) else []


def _fields(model: type[BaseModel]) -> list[tuple[str, FieldInfo]]:
    """A model's fields by the names that they have in a file."""
    named: list[tuple[str, FieldInfo]] = []
    for name, field in model.model_fields.items():
        alias = field.validation_alias
        if isinstance(alias, AliasChoices):
            alias = alias.choices[0]
        named.append((alias if isinstance(alias, str) else name, field))
    return named
