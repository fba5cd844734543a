"""Xids in the kernel's log, each once: what the driver of NVIDIA's GPUs reports, with the recommended action."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from rota.health.checks.result import CheckResult, worst_of
from rota.health.node_state import Severity
from rota.health.xid import action_for, severity_of

KERNEL_LOG = Path("/dev/kmsg")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
SEEN = "xids-seen.json"
_XID = re.compile(r"NVRM: Xid \(PCI:([^)]*)\): (\d+)")
OLD_S = 600.0
"""The first check after a start of the machine leaves out what is older."""
_LONGEST = 8192
"""Bytes of one record of the kernel's log."""


def check_xids(folder: str, kernel_log: Path = KERNEL_LOG) -> CheckResult:
    """The Xids that were logged since the last check, which is remembered in the folder."""
    try:
        records = list(_records(kernel_log))
    except OSError as error:
        return CheckResult(check="xid", text=f"the kernel's log can't be read: {error.strerror}")
    seen = Path(folder) / SEEN
    after = _last_seen(seen)
    since_s = time.monotonic() - OLD_S if after < 0 else 0.0
    new = [(number, text) for number, at_s, text in records if number > after and at_s >= since_s]
    found: list[tuple[Severity, str]] = []
    for _, text in new:
        if match := _XID.search(text):
            xid = int(match[2])
            found.append((severity_of(xid), f"GPU {match[1]} reported Xid {xid}: {action_for(xid).value}"))
    if records and records[-1][0] > after:
        _remember(seen, records[-1][0])
    return worst_of("xid", found, {"xids": len(found)})


def _records(kernel_log: Path) -> Iterator[tuple[int, float, str]]:
    """Yield the number, the time since the start and the text of each record that the kernel still has."""
    log = os.open(kernel_log, os.O_RDONLY | os.O_NONBLOCK)
    try:
        rest = b""
        while True:
            try:
                data = os.read(log, _LONGEST)
            except BlockingIOError:  # all was read
                return
            except BrokenPipeError:  # records were overwritten meanwhile; the next ones follow
                continue
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                about, _, text = line.decode(errors="replace").partition(";")
                _, number, at_us = about.split(",")[:3] if about.count(",") >= 2 else ("", "", "")
                if number.isdigit() and at_us.isdigit():  # lines without a number continue the one before
                    yield int(number), int(at_us) / 1e6, text
    finally:
        os.close(log)


def _boot() -> str:
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _last_seen(path: Path) -> int:
    """Return the last record that an earlier check saw since the machine was started; -1 if there is none."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return int(kept["record"]) if kept["boot"] == _boot() else -1
    except (OSError, ValueError, KeyError, TypeError):
        return -1


def _remember(path: Path, record: int) -> None:
    fresh = path.with_suffix(f".{os.getpid()}")
    try:
        fresh.write_text(json.dumps({"boot": _boot(), "record": record}), encoding="utf-8")
        fresh.replace(path)
    except OSError:  # the next check reports the same again
        fresh.unlink(missing_ok=True)
