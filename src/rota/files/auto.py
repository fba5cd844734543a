"""`auto` in place of an amount: where a job file has it, and the job file with amounts in its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

AUTO = "auto"
USUAL: Mapping[str, object] = {"gpus": 1, "gpu_memory": "8Gi", "cpus": 4, "memory": "4Gi"}
"""The amounts for a job of which nothing is known, by field."""


def autos(values: Mapping[str, Any]) -> list[str]:
    """The fields that the manager is to fill in."""
    return list(dict.fromkeys(field for part in _parts(values) for field in USUAL if part.get(field) == AUTO))


def settled(values: Any, amounts: Mapping[str, object] = USUAL) -> Any:
    """The job file with these amounts in place of each `auto`."""
    if not isinstance(values, dict) or not autos(values):
        return values
    made = dict(values)
    if isinstance(made.get("resources"), dict):
        made["resources"] = _filled(made["resources"], amounts)
    if isinstance(made.get("roles"), dict):
        made["roles"] = {
            name: _filled(role, amounts) if isinstance(role, dict) else role for name, role in made["roles"].items()
        }
    return made


def unsettled(values: Mapping[str, Any]) -> dict[str, Any]:
    """The job file as it was before: `auto` where the manager gave an amount."""
    made = {name: value for name, value in values.items() if name != "estimated"}
    given = {name: estimate["given"] for name, estimate in (values.get("estimated") or {}).items()}

    def back(part: Any) -> Any:
        if not isinstance(part, dict):
            return part
        return {name: AUTO if name in given and given[name] == value else value for name, value in part.items()}

    if "resources" in made:
        made["resources"] = back(made["resources"])
    if isinstance(made.get("labels"), dict):
        made["labels"] = {name: value for name, value in made["labels"].items() if name not in given}
    if isinstance(made.get("roles"), dict):
        made["roles"] = {name: back(role) for name, role in made["roles"].items()}
    return made


def raised(values: Mapping[str, Any], field: str, amount: int, why: str) -> dict[str, Any]:
    """The job file with more of a field, wherever it has what the manager gave, and why."""
    estimate = values["estimated"][field]

    def more(part: Any) -> Any:
        is_ours = isinstance(part, dict) and field in part and part[field] == estimate["given"]
        return {**part, field: amount} if is_ours else part

    made = {**values, "estimated": {**values["estimated"], field: {**estimate, "given": amount, "why": why}}}
    made["estimated"][field]["raised"] = estimate.get("raised", 0) + 1
    if "resources" in made:
        made["resources"] = more(made["resources"])
    if isinstance(made.get("roles"), dict):
        made["roles"] = {name: more(role) for name, role in made["roles"].items()}
    return made


def _parts(values: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    roles = values.get("roles")
    for part in (values.get("resources"), *(roles.values() if isinstance(roles, dict) else ())):
        if isinstance(part, dict):
            yield part


def _filled(part: dict[str, Any], amounts: Mapping[str, object]) -> dict[str, Any]:
    return {name: amounts[name] if value == AUTO and name in amounts else value for name, value in part.items()}
