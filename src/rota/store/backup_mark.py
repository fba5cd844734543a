"""When the database was last copied: the date of an empty file beside it."""

from __future__ import annotations

import os
from pathlib import Path

BACKUP_MARK = "last-backup"


def mark_backup(home: Path) -> bool:
    """Note that the database was copied now; return whether that could be noted."""
    path = home / BACKUP_MARK
    try:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
        os.utime(path, follow_symlinks=False)
    except OSError:
        return False
    return True
