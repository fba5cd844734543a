"""An OpenPAI job (protocol version 2) as a job file of Rota's own, so that it can be submitted.

Commands become one shell script for each task role; `<% $parameters.x %>` is filled in, `<% $secrets.x %>` becomes a
secret variable. What only OpenPAI's platform can do (runtime plugins, storage) is refused by name.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError, did_you_mean
from rota.files.job_shape import MOST_RESTARTS
from rota.files.openpai import PRIORITIES, _OpenPaiFile, _TaskRole, jobs_from
from rota.files.shape import checked

_HOLE = re.compile(r"<%\s*\$(parameters|secrets)\.([A-Za-z0-9_.-]+)\s*%>")
_PRELUDE = (
    'export PAI_JOB_NAME="$ROTA_JOB_NAME" PAI_CURRENT_TASK_ROLE_NAME="$ROTA_ROLE" '
    'PAI_TASK_INDEX="$ROTA_ROLE_RANK" PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX="$ROTA_ROLE_RANK"'
)
"""What OpenPAI's scripts find in their environment."""


def job_values(document: object, path: Path) -> dict[str, Any]:
    """The plain values of the job file that means the same."""
    jobs_from(document, path)
    file = checked(_OpenPaiFile, document, path)
    _refuse(file, path)
    retries = [file.retries, *(role.retries for role in file.roles.values())]
    secrets: dict[str, Any] = {}
    roles = {name: _role(file, name, role, secrets, path) for name, role in file.roles.items()}
    values: dict[str, Any] = {
        "name": re.sub(r"[^A-Za-z0-9._-]", "-", file.name)[:128],
        "tenant": file.defaults.tenant,
        "priority": PRIORITIES[file.extras.hived.priority],
        "gang": file.extras.gang,
        "max_restarts": MOST_RESTARTS if min(retries) < 0 else min(sum(retries), MOST_RESTARTS),
        "roles": roles,
    }
    if secrets:
        values["env"] = secrets
    if (pinned := _pinned(file, path)) is not None:
        values["labels"] = {"pinned_cell": pinned}
    if (image := _image(file, path)) is not None:
        values["image"] = image
    return values


def _refuse(file: _OpenPaiFile, path: Path) -> None:
    if file.extras.other:
        raise RotaError(f"{path}: extras: runtime plugins are OpenPAI's own; drop com.microsoft.pai.runtimeplugin")


def _pinned(file: _OpenPaiFile, path: Path) -> str | None:
    """The pinned cell, one for all roles: a file becomes one job, whose labels are all its tasks'."""
    extras = [file.extras.hived.roles.get(name) for name in file.roles]
    pins = [None if each is None else each.pinned for each in extras]
    if any(pin != pins[0] for pin in pins):
        raise RotaError(
            f"{path}: extras.hivedScheduler.taskRoles: roles are in different pinned cells; "
            "name one pinnedCellId for all of them, or submit them as files of their own"
        )
    return pins[0]


def _role(file: _OpenPaiFile, name: str, role: _TaskRole, secrets: dict[str, Any], path: Path) -> dict[str, Any]:
    script = "\n".join((_PRELUDE, *(_filled(file, line, secrets, f"{path}: {name}") for line in role.commands)))
    values: dict[str, Any] = {
        "count": role.instances,
        "gpus": role.resource.gpu,
        "cpus": role.resource.cpu,
        "memory": role.resource.memory_mb << 20,
        "run": script,
    }
    extras = file.extras.hived.roles.get(name)
    if extras is not None and extras.sku_type is not None:
        values["gpu"] = [extras.sku_type]
    if file.extras.gang:
        values["completion"] = _completion(role)
    return values


def _completion(role: _TaskRole) -> dict[str, int]:
    """OpenPAI's -1 means that no number of failures, or only all successes, end the job."""
    failed, succeeded = role.completion.min_failed, role.completion.min_succeeded
    rule = {"min_failed": role.instances if failed == -1 else max(failed or 1, 1)}
    if succeeded is not None and succeeded > 0:
        rule["min_succeeded"] = succeeded
    return rule


def _filled(file: _OpenPaiFile, line: str, secrets: dict[str, Any], where: str) -> str:
    def fill(hole: re.Match[str]) -> str:
        kind, name = hole[1], hole[2]
        known = file.parameters if kind == "parameters" else file.secrets
        if not isinstance(known, Mapping) or name not in known:
            names = [str(each) for each in known] if isinstance(known, Mapping) else []
            raise RotaError(f"{where}: {hole[0]} is not given under {kind}; {did_you_mean(name, names)}")
        if kind == "parameters":
            return str(known[name])
        variable = "ROTA_SECRET_" + re.sub(r"[^A-Za-z0-9_]", "_", name)
        secrets[variable] = {"secret": str(known[name])}
        return f"${{{variable}}}"

    return _HOLE.sub(fill, line)


def _image(file: _OpenPaiFile, path: Path) -> str | None:
    """The container image, by its address; it must be one for all roles."""
    images = {
        str(each["name"]): str(each.get("uri", ""))
        for each in file.prerequisites or ()
        if isinstance(each, Mapping) and each.get("type") == "dockerimage" and "name" in each
    }
    wanted = {str(role.image) for role in file.roles.values() if role.image is not None}
    if len(wanted) > 1:
        raise RotaError(f"{path}: taskRoles want different images ({', '.join(sorted(wanted))}); a job has one")
    for name in wanted:
        if name not in images:
            raise RotaError(
                f"{path}: unknown prerequisite: dockerImage {shlex.quote(name)}; {did_you_mean(name, images)}"
            )
        return images[name]
    return None
