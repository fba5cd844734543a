"""Rota's own trace format: one row per job, flat columns, the same in Parquet, CSV and JSON lines.

Nested things (`roles`, `depends_on`, `labels`) are JSON text in the flat encodings and plain JSON in JSON
lines. A column that is missing, or a field that is empty, means the default.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from difflib import get_close_matches
from typing import Any, TypeAlias, cast

from rota.core.errors import did_you_mean
from rota.core.model.job import DeviceType, Job, JobId, Level, Role
from rota.core.model.labels import terms_of, tolerations_of
from rota.traces.fields import BadLine, Cell, amount, bad, number, whole
from rota.traces.workload import Outcome, Submission

SECONDS, STEPS = "seconds", "steps"

COLUMNS: Mapping[str, type] = {
    "id": str,
    "submit_s": float,
    "name": str,
    "tenant": str,
    "user": str,
    "priority": int,
    "gpus": float,
    "work": float,
    "work_unit": str,
    "outcome": str,
    "ends_at": float,
    "estimate_s": float,
    "deadline_s": float,
    "time_limit_s": float,
    "max_restarts": int,
    "model": str,
    "exclusive": bool,
    "elastic_min": int,
    "elastic_max": int,
    "locality": str,
    "locality_hard": bool,
    "relax_after_s": float,
    "checkpoint_interval_s": float,
    "checkpoint_grace_s": float,
    "checkpoint_suspend_s": float,
    "checkpoint_resume_s": float,
    "preemptible": bool,
    "preempts": bool,
    "depends_on": str,
    "labels": str,
    "array": str,
    "array_limit": int,
    "roles": str,
}
"""All columns in the order in which they are written, with the type that Parquet gives them."""

JSON_COLUMNS = frozenset({"depends_on", "labels", "roles"})
NEEDED = ("id", "submit_s")

Record: TypeAlias = dict[str, object]

_NODE_TERMS: Mapping[str, tuple[Callable[[Any], object], str]] = {
    "requires": (terms_of, 'a JSON list of lists of [label, operator, [value, ...]], e.g. [[["zone", "In", ["a"]]]]'),
    "tolerates": (tolerations_of, 'a JSON list of [taint, value], e.g. [["spot", null]]'),
}
_ROLE_DEFAULTS = {field.name: field.default for field in fields(Role) if field.default is not MISSING}


def meant(name: str) -> str:
    """The end of a message about an unknown column: the nearest one, or else the nearest key of `roles`."""
    key = _key_like(name)
    if key is None or get_close_matches(name, COLUMNS):
        return did_you_mean(name, COLUMNS)
    return "it is a key of roles" if key == name else f"did you mean {key!r}, a key of roles?"


def _key_like(name: str) -> str | None:
    """The key of `roles` that begins so, or the nearest one; there a GPU is called a device."""
    word = name.replace("gpu", "device")
    longer = [key for key in _ROLE_DEFAULTS if key.startswith(word)]
    return next(iter(longer or get_close_matches(word, _ROLE_DEFAULTS)), None)


def to_record(submission: Submission, work_unit: str) -> Record:
    """A submission as column values; what has its default value is left out."""
    job = submission.job
    record: Record = {
        "id": job.id,
        "submit_s": submission.submit_s,
        "name": job.name or None,
        "tenant": job.tenant,
        "user": job.user or None,
        "priority": job.priority or None,
        "gpus": job.gpus,
        "work": job.work,
        "work_unit": work_unit,
        "outcome": submission.outcome.value,
        "ends_at": submission.ends_at if submission.ends_at != 1.0 else None,
        "estimate_s": job.estimate_s,
        "deadline_s": job.deadline_s,
        "time_limit_s": job.time_limit_s,
        "max_restarts": job.max_restarts,
        "model": job.model,
        "exclusive": job.exclusive or None,
        "preemptible": job.preemptible or None,
        "preempts": None if job.preempts else False,
        "depends_on": list(job.depends_on) or None,
        "labels": [list(pair) for pair in job.labels] or None,
        "array": job.array,
        "array_limit": job.array_limit,
        "roles": [_role_record(role) for role in job.roles],
    }
    _add_wishes(record, job)
    return {name: value for name, value in record.items() if value is not None}


def _add_wishes(record: Record, job: Job) -> None:
    if job.elastic is not None:
        record["elastic_min"] = job.elastic.min_tasks
        record["elastic_max"] = job.elastic.max_tasks
    if job.locality is not None:
        record["locality"] = job.locality.level.name.lower()
        record["locality_hard"] = job.locality.hard or None
        record["relax_after_s"] = job.locality.relax_after_s
    if job.checkpoint is not None:
        record["checkpoint_interval_s"] = job.checkpoint.interval_s
        record["checkpoint_grace_s"] = job.checkpoint.grace_s
        if job.checkpoint.suspend_s is not None:
            record["checkpoint_suspend_s"] = job.checkpoint.suspend_s
        if job.checkpoint.resume_s is not None:
            record["checkpoint_resume_s"] = job.checkpoint.resume_s


def _role_record(role: Role) -> Record:
    """A role with its count and devices, and otherwise only what is not the default."""
    record: Record = {"name": role.name, "count": role.count, "device_milli": role.device_milli}
    for name, default in _ROLE_DEFAULTS.items():
        value = getattr(role, name)
        if name not in record and value != default:
            record[name] = list(value) if isinstance(value, tuple) else value
    return record


def from_json(field: str, value: Cell) -> object:
    """The value itself, or what its text says."""
    if not isinstance(value, str):
        return value
    try:
        return cast(object, json.loads(value))
    except json.JSONDecodeError as err:
        raise bad(field, value, f"JSON ({err.msg})") from None


def parse_roles(value: Cell) -> tuple[Role, ...]:
    """Roles from a JSON list of objects."""
    found = from_json("roles", value)
    if not isinstance(found, list) or not found or not all(isinstance(role, dict) for role in found):
        raise bad("roles", value, "a JSON list of objects, one per role")
    return tuple(_role(role) for role in found)


def _role(record: Record) -> Role:
    values: dict[str, object] = {}
    for name, value in record.items():
        if name not in _ROLE_DEFAULTS:
            raise BadLine(f"roles has an unknown key {name!r}; {did_you_mean(_key_like(name) or name, _ROLE_DEFAULTS)}")
        if name == "name":
            values[name] = _text("roles.name", value)
        elif name == "device_types":
            values[name] = tuple(DeviceType(item) for item in _texts("roles.device_types", value))
        elif name in _NODE_TERMS:
            values[name] = _node_terms(name, value)
        else:
            values[name] = whole(f"roles.{name}", value)
    return Role(**values)  # type: ignore[arg-type]  # each value was made by the parser of its key


def _node_terms(name: str, value: Any) -> object:
    read, form = _NODE_TERMS[name]
    try:
        return read(value)
    except (TypeError, ValueError):
        raise bad(f"roles.{name}", value, form) from None


def parse_depends_on(value: Cell) -> tuple[JobId, ...]:
    """Ids of other jobs from a JSON list."""
    return tuple(JobId(item) for item in _texts("depends_on", from_json("depends_on", value)))


def parse_labels(value: Cell) -> tuple[tuple[str, str], ...]:
    """Labels from a JSON object, or from a list of pairs, which may repeat a key."""
    found = from_json("labels", value)
    pairs = list(found.items()) if isinstance(found, dict) else found
    if not isinstance(pairs, list) or not all(_is_pair(pair) for pair in pairs):
        raise bad("labels", value, "a JSON object of texts, or a list of pairs")
    return tuple((key, text) for key, text in pairs)


def _is_pair(pair: object) -> bool:
    return isinstance(pair, (list, tuple)) and len(pair) == 2 and all(isinstance(part, str) for part in pair)


def _text(field: str, value: Cell) -> str:
    if not isinstance(value, str):
        raise bad(field, value, "a text")
    return value


def _texts(field: str, value: Cell) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise bad(field, value, "a JSON list of texts")
    return value


def _flag(field: str, value: Cell) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise bad(field, value, "true or false")


def _fraction(field: str, value: Cell) -> float:
    found = number(field, value)
    if not 0.0 <= found <= 1.0:
        raise bad(field, value, "a number between 0 and 1")
    return found


def _priority(field: str, value: Cell) -> int:
    return whole(field, value, at_least=-1)


def _positive_whole(field: str, value: Cell) -> int:
    return whole(field, value, at_least=1)


def _bound(field: str, value: Cell) -> float:
    """A number of 0 or more, or `inf`: no bound."""
    return float("inf") if value in ("inf", float("inf")) else amount(field, value)


_OUTCOMES: Mapping[object, Outcome] = {outcome.value: outcome for outcome in Outcome}


def _outcome(field: str, value: Cell) -> Outcome:
    outcome = _OUTCOMES.get(value)
    if outcome is None:
        raise bad(field, value, f"one of {', '.join(outcome.value for outcome in Outcome)}")
    return outcome


def _level(field: str, value: Cell) -> Level:
    names = [level.name.lower() for level in Level]
    if value not in names:
        raise bad(field, value, f"one of {', '.join(names)}")
    return Level(names.index(value))


def _unit(field: str, value: Cell) -> str:
    if value not in (SECONDS, STEPS):
        raise bad(field, value, f"{SECONDS} or {STEPS}")
    return value


PARSERS: Mapping[str, Callable[[str, Cell], object]] = {
    "id": lambda field, value: str(value) if isinstance(value, int) else _text(field, value),
    "submit_s": amount,
    "name": _text,
    "tenant": _text,
    "user": _text,
    "priority": _priority,
    "gpus": amount,
    "work": amount,
    "work_unit": _unit,
    "outcome": _outcome,
    "ends_at": _fraction,
    "estimate_s": _bound,
    "deadline_s": _bound,
    "time_limit_s": _bound,
    "max_restarts": whole,
    "model": _text,
    "exclusive": _flag,
    "elastic_min": _positive_whole,
    "elastic_max": _positive_whole,
    "locality": _level,
    "locality_hard": _flag,
    "relax_after_s": _bound,
    "checkpoint_interval_s": _bound,
    "checkpoint_grace_s": _bound,
    "checkpoint_suspend_s": _bound,
    "checkpoint_resume_s": _bound,
    "preemptible": _flag,
    "preempts": _flag,
    "depends_on": lambda _, value: parse_depends_on(value),
    "labels": lambda _, value: parse_labels(value),
    "array": _text,
    "array_limit": _positive_whole,
    "roles": lambda _, value: parse_roles(value),
}
"""How each column's field becomes a value; one entry per column."""
