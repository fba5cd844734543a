"""Snapshots of code, by the digest of their archive: received in parts, kept for each tenant, deleted when unused."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Container
from pathlib import Path

from rota.core.errors import RotaError
from rota.store import clock
from rota.store.run_folder import matching

MOST_BYTES = 256 << 20
MOST_OF_TENANT = 20 << 30
"""What the snapshots of a tenant may hold together."""
MOST_NUMBER = 10_000
FILE_BYTES = 16384
"""What a snapshot counts at least, however small."""
LEFT_FREE = 0.05
"""The fraction of the disk that snapshots leave free."""
KEPT_S = 86400.0
"""How long a snapshot is kept that no job names."""
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)


class Snapshots:
    """The snapshots of a manager, in `snapshots/TENANT/DIGEST.tar.gz`."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "snapshots"

    def path(self, tenant: str, digest: str) -> Path:
        """Return where a snapshot is kept."""
        if not tenant or tenant.startswith(".") or "/" in tenant:
            raise RotaError(f"tenant: {tenant[:80]!r} is no name of a folder")
        if not _DIGEST.fullmatch(digest):
            raise RotaError(f"snapshot: {digest[:80]!r} is no digest; it has 64 digits from 0 to f")
        return self._folder / tenant / f"{digest}.tar.gz"

    def has(self, tenant: str, digest: str) -> bool:
        """Whether a tenant has a snapshot; one that is asked for is kept for another day."""
        try:
            os.utime(self.path(tenant, digest))
        except OSError:
            return False
        return True

    def received(self, tenant: str, digest: str, sender: str, size: int) -> int:
        """Return how many bytes of a snapshot have arrived from a sender: all of them if the tenant has it."""
        if self.has(tenant, digest):
            return size
        try:
            return self._part(tenant, digest, sender).stat().st_size
        except OSError:
            return 0

    def receive(self, tenant: str, digest: str, sender: str, offset: int, part: bytes, size: int) -> int:
        """Append a part of a snapshot; return how many bytes have arrived. The last one makes it whole."""
        if self.has(tenant, digest):
            return size
        if not 0 < size <= MOST_BYTES:
            raise RotaError(f"snapshot: it has {size} bytes; the maximum is {MOST_BYTES}")
        path = self._part(tenant, digest, sender)
        if offset == 0:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._folder.chmod(0o700)
        arrived = path.stat().st_size if path.exists() else 0
        self._refuse_too_much(tenant, path, size - offset)
        if offset > arrived or offset + len(part) > size:
            raise RotaError(f"snapshot: offset is {offset} with {arrived} of {size} bytes received")
        with path.open("r+b" if arrived else "wb") as file:
            file.seek(offset)
            file.write(part)
            file.truncate()
        if offset + len(part) < size:
            return offset + len(part)
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != digest:
            path.unlink()
            raise RotaError(f"snapshot: its digest is {found}, not {digest}; send it again")
        os.replace(path, self.path(tenant, digest))
        return size

    def _refuse_too_much(self, tenant: str, path: Path, more: int) -> None:
        """Raise a `RotaError` if there is no room for what is still to come; asked with each part, as many arrive."""
        number = used = 0
        try:
            with os.scandir(path.parent) as entries:
                for entry in entries:
                    number += entry.name != path.name
                    with contextlib.suppress(FileNotFoundError):  # another became whole
                        used += max(entry.stat(follow_symlinks=False).st_blocks * 512, FILE_BYTES)
        except FileNotFoundError:
            return
        kept = "they go a day after the last job that names them"
        if number >= MOST_NUMBER:
            raise RotaError(f"snapshot: tenant {tenant} has {number} already, which is the maximum; {kept}")
        if used + more > MOST_OF_TENANT:
            raise RotaError(f"snapshot: those of tenant {tenant} hold more than {MOST_OF_TENANT >> 30} GiB; {kept}")
        disk = shutil.disk_usage(path.parent)
        if disk.free - more < disk.total * LEFT_FREE:
            raise RotaError(f"snapshot: the disk has {disk.free >> 20} MiB left, too little for {more >> 20} MiB more")

    def tidy(self, named: Container[str]) -> list[str]:
        """Delete what no job names and no request asked for in the last day; return the digests."""
        gone = []
        before = clock.now_s() - KEPT_S
        for path in matching(self._folder, "*/*"):
            digest = path.name.partition(".")[0]
            try:
                if clock.from_wall_s(path.stat().st_mtime) < before and (path.suffix == ".part" or digest not in named):
                    path.unlink()
                    gone.append(digest)
            except OSError:
                continue
        return gone

    def _part(self, tenant: str, digest: str, sender: str) -> Path:
        whole = self.path(tenant, digest)
        return whole.with_name(f"{digest}.{hashlib.sha256(sender.encode()).hexdigest()[:16]}.part")
