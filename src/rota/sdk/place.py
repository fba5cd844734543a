"""The folders of a manager on this machine, and the file by which commands find it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path


def data_folder() -> Path:
    """Return the default folder of the manager's database and the jobs' files."""
    return _folder("XDG_DATA_HOME", ".local/share")


def state_folder() -> Path:
    """Return the folder of the file with the manager's address."""
    return _folder("XDG_STATE_HOME", ".local/state")


def _folder(variable: str, default: str) -> Path:
    base = os.environ.get(variable)
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / default) / "rota"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerAddress:
    """The address of the manager of this machine, and the certificate to trust."""

    url: str
    cacert: str | None = None


def write_sign(address: ManagerAddress, data: Path) -> Path:
    """Write the manager's address, for commands to find."""
    path = state_folder() / "manager.json"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".manager.{os.getpid()}")
    value = {"url": address.url, "cacert": address.cacert, "pid": os.getpid(), "data": str(data)}
    draft.write_text(json.dumps(value), encoding="utf-8")
    draft.replace(path)
    return path


def remove_sign() -> None:
    """Remove the address of this process; that of a manager started later stays."""
    path = state_folder() / "manager.json"
    try:
        if json.loads(path.read_text(encoding="utf-8"))["pid"] == os.getpid():
            path.unlink()
    except (OSError, ValueError, KeyError, TypeError):
        return


def find_manager() -> ManagerAddress | None:
    """Return the address of the manager that was last started here, or None."""
    try:
        value = json.loads((state_folder() / "manager.json").read_text(encoding="utf-8"))
        return ManagerAddress(url=str(value["url"]), cacert=value.get("cacert"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
