"""A task that is told to stop while its process still turns into it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from rota.drivers.local.task_runner.recorder import _start


@pytest.mark.parametrize("slow", ["setsid", "dup2"])
def test_signal_right_after_the_start_is_not_lost(slow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorder ignores SIGTERM, and so does what it forks, until it has made itself a process of its own."""
    real = getattr(os, slow)

    def delayed(*given: Any) -> Any:
        time.sleep(0.2)
        return real(*given)

    monkeypatch.setattr(os, slow, delayed)
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    silent = os.open(os.devnull, os.O_RDWR)
    ends = os.pipe()
    task = {"argv": ["sleep", "20"], "env": {"PATH": os.environ["PATH"]}, "workdir": str(tmp_path)}
    try:
        pid = _start(task, (silent, silent, silent), ends)
        os.kill(pid, signal.SIGTERM)
        _, status = os.waitpid(pid, 0)
    finally:
        signal.signal(signal.SIGTERM, before)
        for each in (silent, *ends):
            os.close(each)

    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
