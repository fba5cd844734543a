"""Meters of the resources that a job uses and requests: devices, CPUs, memory."""

from __future__ import annotations

import json
import time
from typing import Any

from nicegui import html

from rota.core.model.job import WHOLE, JobId
from rota.drivers.local.task_usage import TaskUsage
from rota.files.job import job_file, job_of
from rota.web import words
from rota.web.parts.basics import bar

Json = dict[str, Any]


class Meters:
    """Bars that follow the resource usage of a running job."""

    def __init__(self, row: Any) -> None:
        job = job_of(job_file(json.loads(row.spec)), JobId(row.id))
        self._cpus = sum(role.count * role.cpu_milli for role in job.roles) / WHOLE
        self._memory = sum(role.count * role.memory_bytes for role in job.roles)
        self._gpus = job.gpus
        self._tasks = job.tasks
        self._last: tuple[float, float] | None = None
        self._drawn: object = None
        self._box = html.div().classes("stack")

    def show(self, now: TaskUsage | None, ended: Json | None) -> None:
        """Show the current usage, the final usage of an ended job, or the request alone."""
        rate = self._rate(now)
        drawn = (now, ended, rate)
        if drawn == self._drawn:
            return
        self._drawn = drawn
        self._box.clear()
        with self._box:
            kind = f"{words.amount(self._gpus)} GPUs" if self._gpus != 1 else "1 GPU"
            self._row("Devices", f"{kind} for {words.plural(self._tasks, 'task')}", None)
            if now is not None:
                used = f"{rate:.2f} CPUs" if rate is not None else "measuring"
                self._row(
                    "CPU",
                    _against(used, self._cpus, f"{words.amount(self._cpus)} requested"),
                    _fraction(rate, self._cpus),
                )
                memory = _against(words.size(now.memory_bytes), self._memory, f"{words.size(self._memory)} requested")
                self._row("Memory", memory, _fraction(now.memory_bytes, self._memory))
                self._row("CPU time", words.duration(now.cpu_s), None)
            elif ended is not None:
                request = f"{words.size(self._memory)} requested"
                self._row(
                    "Peak memory of a task", _against(words.size(ended["memory_bytes"]), self._memory, request), None
                )
                self._row("CPU time", words.duration(ended["cpu_s"]), None)
            else:
                self._row("CPU", f"{words.amount(self._cpus)} requested" if self._cpus else "no request", None)
                self._row("Memory", f"{words.size(self._memory)} requested" if self._memory else "no request", None)

    def _rate(self, now: TaskUsage | None) -> float | None:
        """Return the mean number of CPUs in use since the last call, once that can be measured."""
        if now is None:
            self._last = None
            return None
        at_s = time.monotonic()
        before, self._last = self._last, (at_s, now.cpu_s)
        if before is None or at_s - before[0] < 0.5:
            return None
        return round(max(now.cpu_s - before[1], 0.0) / (at_s - before[0]), 2)

    def _row(self, name: str, text: str, fraction: float | None) -> None:
        with html.div().classes("row-label"):
            html.span(name).classes("strong")
            html.span(text).classes("muted")
        if fraction is not None:
            bar((("used", min(fraction, 1.0), "bad" if fraction > 1 else "busy"),), 1.0, f"{name}: {text}")


def _against(used: str, requested: float, request_text: str) -> str:
    return f"{used} of {request_text}" if requested else f"{used}, no request"


def _fraction(used: float | None, requested: float) -> float | None:
    return used / requested if requested and used is not None else None
