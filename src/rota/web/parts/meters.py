"""What a job uses against what it asked for: CPUs, memory, devices."""

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
    """Bars that follow a running job."""

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
        """Show what is used now, or what was in the end."""
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
                    "CPU", _against(used, self._cpus, f"{words.amount(self._cpus)} asked for"), _part(rate, self._cpus)
                )
                memory = _against(words.size(now.memory_bytes), self._memory, f"{words.size(self._memory)} asked for")
                self._row("Memory", memory, _part(now.memory_bytes, self._memory))
                self._row("CPU time", words.duration(now.cpu_s), None)
            elif ended is not None:
                asked = f"{words.size(self._memory)} asked for"
                self._row(
                    "Most memory of a task", _against(words.size(ended["memory_bytes"]), self._memory, asked), None
                )
                self._row("CPU time", words.duration(ended["cpu_s"]), None)
            else:
                self._row("CPU", f"{words.amount(self._cpus)} asked for" if self._cpus else "nothing asked for", None)
                self._row(
                    "Memory", f"{words.size(self._memory)} asked for" if self._memory else "nothing asked for", None
                )

    def _rate(self, now: TaskUsage | None) -> float | None:
        """CPUs in use since the last look."""
        if now is None:
            self._last = None
            return None
        at_s = time.monotonic()
        before, self._last = self._last, (at_s, now.cpu_s)
        if before is None or at_s - before[0] < 0.5:
            return None
        return round(max(now.cpu_s - before[1], 0.0) / (at_s - before[0]), 2)

    def _row(self, name: str, said: str, part: float | None) -> None:
        with html.div().classes("row-label"):
            html.span(name).classes("strong")
            html.span(said).classes("muted")
        if part is not None:
            bar((("in use", min(part, 1.0), "bad" if part > 1 else "busy"),), 1.0, f"{name}: {said}")


def _against(used: str, asked: float, words_of_it: str) -> str:
    return f"{used} of {words_of_it}" if asked else f"{used}, no limit asked for"


def _part(used: float | None, asked: float) -> float | None:
    return used / asked if asked and used is not None else None
