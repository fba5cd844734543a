"""Where a manager on this machine keeps its things, and how to find it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path


def data_folder() -> Path:
    """Where the manager's database and the jobs' folders are, unless it is told otherwise."""
    return _folder("XDG_DATA_HOME", ".local/share")


def state_folder() -> Path:
    """Where the manager says that it runs."""
    return _folder("XDG_STATE_HOME", ".local/state")


def _folder(variable: str, usual: str) -> Path:
    base = os.environ.get(variable)
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / usual) / "rota"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerAddress:
    """Where the manager of this machine answers, and the certificate to trust if it has one."""

    url: str
    cacert: str | None = None


def write_sign(sign: ManagerAddress, data: Path) -> Path:
    """Say where the manager answers, for commands to find."""
    path = state_folder() / "manager.json"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".manager.{os.getpid()}")
    value = {"url": sign.url, "cacert": sign.cacert, "pid": os.getpid(), "data": str(data)}
    draft.write_text(json.dumps(value), encoding="utf-8")
    draft.replace(path)
    return path


def remove_sign() -> None:
    """This process manages no more; the sign of one that was started since stays."""
    path = state_folder() / "manager.json"
    try:
        if json.loads(path.read_text(encoding="utf-8"))["pid"] == os.getpid():
            path.unlink()
    except (OSError, ValueError, KeyError, TypeError):
        return


def find_manager() -> ManagerAddress | None:
    """The manager that was last started here; None if there never was one."""
    try:
        value = json.loads((state_folder() / "manager.json").read_text(encoding="utf-8"))
        return ManagerAddress(url=str(value["url"]), cacert=value.get("cacert"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
