"""The profile of system calls for the containers of confined tasks: the runtime's own, without those refused anyway."""

from __future__ import annotations

import json
import os
from pathlib import Path

from rota.core.errors import RotaError
from rota.drivers.local.task_runner.seccomp import REFUSED
from rota.store.run_folder import Json

PROFILES = (Path("/usr/share/containers/seccomp.json"), Path("/etc/containers/seccomp.json"))


def write_profile(folder: Path) -> Path:
    """Write the profile of a container to its folder; raises a `RotaError` where the runtime has none."""
    source = next((path for path in PROFILES if path.is_file()), None)
    if source is None:
        raise RotaError(f"seccomp is on, and there is no profile {PROFILES[0]}; install the runtime's, or set it off")
    profile: Json = json.loads(source.read_text(encoding="utf-8"))
    refused = {name for calls in REFUSED.values() for name in calls}
    profile["syscalls"] = [
        {**rule, "names": names}
        for rule in profile["syscalls"]
        if (names := [name for name in rule["names"] if not _is_allowed(rule) or name not in refused])
    ]
    path = folder / "seccomp.json"
    path.write_text(json.dumps(profile), encoding="utf-8")
    os.chmod(path, 0o600)
    return path


def _is_allowed(rule: Json) -> bool:
    return bool(rule.get("action") == "SCMP_ACT_ALLOW")
