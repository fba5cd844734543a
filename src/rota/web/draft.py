"""A job file being edited: one set of plain values, shown as a form and as YAML."""

from __future__ import annotations

import json
from datetime import date, datetime
from typing import Any

import yaml

from rota.core.errors import RotaError
from rota.files.auto import unsettled
from rota.files.job import MASK, masked
from rota.files.yaml_input import parse_yaml

Json = dict[str, Any]
MAX_TEXT = 65536
MAX_VALUES = 3000
"""Values in an edited job file: reading them takes a few hundredths of a second."""
START: Json = {"name": "my-job", "resources": {"gpus": 1}, "run": "echo hello from $ROTA_NODE; sleep 30"}


def values_of(text: str, what: str = "job") -> Json:
    """Parse the text of a job file or template; raises `RotaError` naming the line or field that is wrong."""
    if len(text) > MAX_TEXT:
        raise RotaError(f"the {what} file is longer than {MAX_TEXT >> 10} KiB")
    found = parse_yaml(text, what, most_values=MAX_VALUES)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise RotaError(f"{what}: must be a mapping of fields to values")
    return found


def plain_values(values: Json) -> Json:
    """Return the values as plain JSON, ready to submit; the manager validates them."""
    try:
        plain: Json = json.loads(json.dumps(values, default=_plain, allow_nan=False))
    except (ValueError, TypeError, RecursionError) as error:
        raise RotaError(f"job: can't be written as JSON: {str(error)[:200]}") from error
    return plain


def _plain(value: object) -> str:
    if isinstance(value, date | datetime):
        return value.isoformat()
    raise RotaError(f"job: {value!r} is not a value that a job file can hold")


class _Dumper(yaml.SafeDumper):
    """Writes multi-line strings in block style."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def text_of(values: Json) -> str:
    """Return the values as the text of a job file."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100) if values else ""


def get(values: Json, path: str) -> Any:
    """Return the value at a dotted path, or None."""
    found: Any = values
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def put(values: Json, path: str, value: Any) -> None:
    """Set the value at a dotted path; None removes it, along with mappings that become empty."""
    first, _, rest = path.partition(".")
    if not rest:
        if value is None:
            values.pop(first, None)
        else:
            values[first] = value
        return
    inner = values.get(first)
    inner = inner if isinstance(inner, dict) else {}
    put(inner, rest, value)
    if inner:
        values[first] = inner
    else:
        values.pop(first, None)


def clone_of(spec: Json, *, is_own: bool = True) -> tuple[Json, list[str]]:
    """Return the values for a copy of a job, and the names of the secrets that must be entered again.

    All variables of another user's job count as secrets.
    """
    values = unsettled(masked(spec, whole=not is_own))
    for of_array in ("array", "array_limit"):
        values.pop(of_array, None)
    missing: list[str] = []
    for part in (values, *(values.get("roles") or {}).values()):
        env = part.get("env")
        if isinstance(env, dict):
            hidden = [name for name, value in env.items() if value == {"secret": MASK} or not is_own]
            missing += hidden
            part["env"] = {name: value for name, value in env.items() if name not in hidden}
            if not part["env"]:
                del part["env"]
    return values, missing
