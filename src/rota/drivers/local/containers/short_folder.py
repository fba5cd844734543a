"""A folder with a short path for a container: Podman takes none above 50 characters for its state."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from pathlib import Path

from rota.core.errors import RotaError
from rota.store.run_folder import remove_folder

LINK = "short"
"""In a container's own folder: where the short one is."""
_NAME = "rota-containers"


def make_short(folder: Path, name: str) -> Path:
    """Make the short folder of a container, once, and note it in the container's own folder."""
    base = _base()
    short = base / hashlib.sha256(name.encode()).hexdigest()[:16]
    short.mkdir(mode=0o700, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (folder / LINK).symlink_to(short)
    return short


def remove_short(folder: Path) -> None:
    """Remove the short folder that a container's own folder names; of no other place."""
    with contextlib.suppress(OSError, RotaError):
        short = Path(os.readlink(folder / LINK))
        if short.parent == _base():
            remove_folder(short)


def _base() -> Path:
    """Return the folder of the short ones, which is this user's only; raises a `RotaError` if it is another's."""
    uid = os.geteuid()
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    if uid == 0:
        base = Path("/run", _NAME)
    elif given and len(given) <= 16 and os.access(given, os.W_OK):
        base = Path(given, _NAME)
    else:
        base = Path("/tmp", f"{_NAME}-{uid}")
    base.mkdir(mode=0o700, exist_ok=True)
    found = base.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid or found.st_mode & 0o077:
        raise RotaError(f"{base} is not a folder of this user's only; remove it")
    return base
