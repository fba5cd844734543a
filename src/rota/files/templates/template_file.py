"""Reads templates: typed parameters take the places `{{ name }}` in a job or a sweep file."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from rota.core.errors import RotaError, did_you_mean
from rota.files.document import read_document
from rota.files.job import submitted_job
from rota.files.job_shape import Text
from rota.files.shape import FileModel, checked
from rota.files.templates.filling import PLACE, Filler, Value, places_in_quotes

Json = dict[str, Any]
LIBRARY = Path(__file__).with_name("library")
MOST_PARAMETERS = 100
MOST_JOBS = 1000
MOST_OF_ARRAY = 4 << 20
"""Characters of all jobs of an array together; a request may have as many bytes."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
_DECIMAL = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,18}|(?=\.))(?:\.[0-9]{1,30})?(?:[eE][-+]?[0-9]{1,4})?")
"""A number as a job file has it: no other base, and nothing that could be meant in one."""
_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


class TemplateParameter(FileModel):
    """One parameter: its type, its bounds, and what it is without a value. Without a default it must be given."""

    type: Literal["text", "integer", "number", "boolean", "choice"] = "text"
    default: bool | int | float | str | None = None
    choices: Annotated[tuple[Text, ...], Field(max_length=200)] = ()
    min: float | None = None
    max: float | None = None
    help: Annotated[Text, Field(max_length=500)] = ""

    @model_validator(mode="after")
    def _agree(self) -> TemplateParameter:
        if (self.type == "choice") != bool(self.choices):
            raise ValueError("choices are for a parameter of the type choice, which needs them")
        if self.type not in ("integer", "number") and not (self.min is None and self.max is None):
            raise ValueError("min and max are for an integer or a number")
        if self.default is not None:
            self.read("default", self.default)
        return self

    def read(self, name: str, given: object) -> Value:
        """Return a value of the parameter's type; raises a `ValueError` for anything else."""
        match self.type:
            case "boolean":
                found = given if isinstance(given, bool) else _WORDS.get(str(given).strip().lower())
                if found is None:
                    raise ValueError(f"{name} is {_short(given)}; it must be true or false")
                return found
            case "integer" | "number":
                return self._number(name, given)
            case "choice":
                if str(given) not in self.choices:
                    raise ValueError(
                        f"{name}: unknown choice {_short(given)}; {did_you_mean(str(given), self.choices)}"
                    )
        if isinstance(given, bool):
            return str(given).lower()
        text = str(given)
        if "\0" in text or len(text) > 65536:
            raise ValueError(f"{name}: it holds a NUL character, or more than 65536 others")
        return text

    def _number(self, name: str, given: object) -> int | float:
        kind = "a whole number" if self.type == "integer" else "a number"
        text = "" if isinstance(given, bool) else str(given).strip()
        found: float = float(text) if _DECIMAL.fullmatch(text) else math.nan
        if not math.isfinite(found) or (self.type == "integer" and found != int(found)):
            raise ValueError(f"{name} is {_short(given)}; it must be {kind}")
        if self.type == "integer" and text.lstrip("+-").isdigit():
            found = int(text)  # exactly
        if self.min is not None and found < self.min:
            raise ValueError(f"{name} is {given}; it must be at least {self.min:g}")
        if self.max is not None and found > self.max:
            raise ValueError(f"{name} is {given}; it must be at most {self.max:g}")
        return int(found) if self.type == "integer" else found


class TemplateFile(FileModel):
    """A template: what it is for, its parameters, and the job or the sweep that it stands for."""

    description: Annotated[Text, Field(min_length=1, max_length=2000)]
    parameters: Annotated[dict[Text, TemplateParameter], Field(max_length=MOST_PARAMETERS)] = {}
    job: dict[Text, Any] | None = None
    sweep: dict[Text, Any] | None = None
    array: Annotated[int, Field(ge=1, le=MOST_JOBS)] | Text | None = None
    """How many jobs it stands for, numbered from 0 in `ROTA_ARRAY_INDEX`; in `"8%2"` at most two run at once."""

    @model_validator(mode="after")
    def _agree(self) -> TemplateFile:
        if (self.job is None) == (self.sweep is None):
            raise ValueError("a template has either a job or a sweep; give one of them")
        for name in self.parameters:
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"parameters: {_short(name)} is no name; use letters, digits and underscores")
        used = {name for text in _texts([self.job, self.sweep, self.array]) for name in PLACE.findall(text)}
        for name in sorted(used - self.parameters.keys()):
            raise ValueError(f"{{{{ {name} }}}} is no parameter; {did_you_mean(name, self.parameters)}")
        for name in places_in_quotes([self.job, self.sweep]):
            raise ValueError(f"{{{{ {name} }}}} stands in quotes of a command; drop these, since each value is quoted")
        for name in sorted(self.parameters.keys() - used):
            raise ValueError(f"parameters.{name} is used nowhere; drop it, or write {{{{ {name} }}}} where it belongs")
        return self

    def values(self, given: Mapping[str, object], source: str = "template") -> dict[str, Value]:
        """Return the value of every parameter; an error names the one that is unknown, missing or wrong."""
        for name in given:
            if name not in self.parameters:
                raise RotaError(f"{source}: no parameter {_short(name)}; {did_you_mean(name, self.parameters)}")
        found: dict[str, Value] = {}
        for name, part in self.parameters.items():
            value = given.get(name)
            if value is None or (value == "" and part.type != "text"):
                value = part.default
            if value is None:
                raise RotaError(f"{source}: parameter {name} has no value; give it with -p {name}=VALUE")
            try:
                found[name] = part.read(name, value)
            except ValueError as error:
                raise RotaError(f"{source}: {error}") from error
        return found

    def sample(self, source: str = "template") -> Json:
        """Return what it stands for with the default of each parameter, or some value that it may have."""
        return self.filled({name: _sample(part) for name, part in self.parameters.items()}, source)

    def filled(self, given: Mapping[str, object], source: str = "template") -> Json:
        """Return the `jobs` or the `sweep` that the template stands for with these values."""
        filler = Filler(self.values(given, source), source)
        if self.sweep is not None:
            return {"sweep": filler.filled(self.sweep)}
        job = filler.filled(self.job)
        if self.array is None:
            return {"jobs": [job]}
        size, (count, limit) = filler.size, _array(filler.filled(self.array), source)
        if limit is not None:
            job = {**job, "array_limit": limit}
        if size * count > MOST_OF_ARRAY:
            raise RotaError(
                f"{source}: {count} jobs of {size} characters exceed {MOST_OF_ARRAY >> 20} MiB; give shorter values"
            )
        return {"jobs": [{**job, "array": number} for number in range(count)]}


def template_file(values: object, source: Path | str = "template") -> TemplateFile:
    """Validate a template: its own fields, and with the defaults of its parameters the job that it stands for."""
    found = checked(TemplateFile, values, Path(source))
    for job in found.sample(str(source)).get("jobs", [])[:1]:
        submitted_job(job, source)
    return found


def _array(given: object, source: str) -> tuple[int, int | None]:
    """Return the number of jobs, and of those that may run at once."""
    count, percent, limit = str(given).partition("%")
    numbers = [count, limit] if percent else [count]
    if not all(re.fullmatch("[0-9]{1,9}", each.strip(), re.ASCII) and int(each) for each in numbers) or (
        int(count) > MOST_JOBS
    ):
        raise RotaError(
            f"{source}: array is {given!r:.60}; it must be a number of jobs from 1 to {MOST_JOBS}, "
            "and as in '8%2' how many of them may run at once"
        )
    return int(count), int(limit) if percent else None


@cache
def library() -> Mapping[str, TemplateFile]:
    """Return the templates that come with Rota, by name."""
    paths = sorted(LIBRARY.glob("*.yaml"))
    return {path.stem: template_file(read_document(path), path.name) for path in paths}


def _sample(part: TemplateParameter) -> Value:
    """A value that a parameter may have."""
    if part.default is not None:
        return part.default
    match part.type:
        case "boolean":
            return False
        case "choice":
            return part.choices[0]
        case "text":
            return "sample"
    return next((bound for bound in (part.min, part.max) if bound is not None), 1)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _short(value: object) -> str:
    return f"{value!r:.60}"
