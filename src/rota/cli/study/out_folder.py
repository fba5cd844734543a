"""The folder of `--out`: one run at a time writes into it, and earlier results are not replaced in silence."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from rota.cli.terminal import echo
from rota.core.errors import RotaError

LOCK = ".lock"
REPORT = "report.html"


@contextmanager
def claimed(out: Path | None, policies: Sequence[str]) -> Iterator[list[Path | None]]:
    """Where each policy's files go, while no other run may write there: the folder itself if there is one policy."""
    if out is None:
        yield [None] * len(policies)
        return
    if out.exists() and not out.is_dir():
        raise RotaError(f"--out {out}: it exists and is not a folder")
    out.mkdir(parents=True, exist_ok=True)
    with (out / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RotaError(f"--out {out}: another run writes into it now; wait, or name another folder") from None
        if (out / REPORT).exists():
            written = datetime.fromtimestamp((out / REPORT).stat().st_mtime).isoformat(" ", "minutes")
            echo(f"note: --out {out}: replaces the results of an earlier run ({written})", err=True)
        yield _folders(out, policies)


def _folders(out: Path, policies: Sequence[str]) -> list[Path | None]:
    if len(policies) == 1:
        return [out]
    from rota.report.look import slug

    return [out / slug(spec) for spec in policies]
