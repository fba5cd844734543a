"""Signals of a supervisor, as bytes that it can wait for."""

from __future__ import annotations

import os
import signal

stop_requests: list[int] = []
"""SIGTERMs that came: orders to stop."""


def catch_signals() -> int:
    """Signals become readable bytes; SIGTERM is remembered as an order to stop."""
    wake, woken = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda number, frame: stop_requests.append(number))
    signal.signal(signal.SIGUSR1, lambda number, frame: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return wake
