"""Where a manager on this machine keeps its things, and how to find it."""

from __future__ import annotations

import json
import os
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


def write_sign(url: str, data: Path) -> Path:
    """Say where the manager answers, for commands to find."""
    sign = state_folder() / "manager.json"
    sign.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = sign.with_name(f".manager.{os.getpid()}")
    draft.write_text(json.dumps({"url": url, "pid": os.getpid(), "data": str(data)}), encoding="utf-8")
    draft.replace(sign)
    return sign


def find_manager() -> str | None:
    """The address of the manager that was last started here; None if there never was one."""
    try:
        url = json.loads((state_folder() / "manager.json").read_text(encoding="utf-8"))["url"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(url)
