"""Where results come from: the version and commit of Rota, and the machine."""

from __future__ import annotations

import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from rota import __version__


@cache
def source_commit() -> str | None:
    """The commit of the checkout that runs, with `+changes` if files differ from it; None for an installed package."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    head = _git(root, "rev-parse", "HEAD")
    if head is None:
        return None
    return f"{head}+changes" if _git(root, "status", "--porcelain", "--untracked-files=no", "src") else head


def _git(root: Path, *args: str) -> str | None:
    try:
        done = subprocess.run(["git", *args], cwd=root, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def provenance() -> dict[str, str | None]:
    """What each row says of its origin."""
    return {
        "rota_version": __version__,
        "rota_commit": source_commit(),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "recorded": datetime.now(UTC).isoformat(timespec="seconds"),
    }
