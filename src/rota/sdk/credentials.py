"""The sessions that `rota login` opened, by the manager's address, in a file that only its owner can read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from rota.sdk.place import state_folder


def credentials_file() -> Path:
    """Return the file of the sessions."""
    return state_folder() / "credentials.json"


def read_credentials(url: str) -> str | None:
    """Return the token for a manager, or None; a file that others can read is not used."""
    found = _all().get(url)
    return found if isinstance(found, str) and found else None


def write_credentials(url: str, token: str | None) -> None:
    """Keep the token for a manager, or forget it."""
    kept = _all()
    kept.pop(url, None)
    if token is not None:
        kept[url] = token
    _write(kept)


def read_mark(url: str, user: str) -> str:
    """Return what the manager returned when a user last logged in from here; empty if it did not."""
    found = _all().get(f"{url} {user}")
    return found if isinstance(found, str) else ""


def write_mark(url: str, user: str, mark: str) -> None:
    """Keep the mark that a login returned: with it, failed logins of others do not count."""
    _write({**_all(), f"{url} {user}": mark})


def _write(kept: dict[str, Any]) -> None:
    path = credentials_file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".credentials.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(kept, file)
    draft.replace(path)


def _all() -> dict[str, Any]:
    path = credentials_file()
    try:
        if path.stat().st_mode & 0o077:
            return {}
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
