"""Samples the GPUs of this machine once a second, and acts on what is seen: warnings, critical errors, idle jobs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rota.core.engine.preemption_guard import can_resume
from rota.core.messages.events import JobCancelled, JobRequeued
from rota.core.model.job import WHOLE, JobId, JobState
from rota.core.model.placement import device_indexes
from rota.core.state.job_record import LiveJob
from rota.drivers.local.gpu.idle import IdleStep, IdleWatch
from rota.drivers.local.gpu.job_energy import energy_of, warnings_of
from rota.drivers.local.gpu.mig import DevicesByNode
from rota.drivers.local.gpu.mps import MpsDaemons
from rota.drivers.local.gpu.sensors import GpuSensors
from rota.drivers.local.gpu.settings import GpuSettings, IdleAction, MpsUse
from rota.drivers.local.gpu.telemetry import GpuHolder, GpuTelemetry
from rota.live.loop.control import Control
from rota.live.loop.entry import LoopEntry
from rota.store import clock
from rota.store.run_folder import attempt_folder, matching, read_json, write_json

log = logging.getLogger("rota.live")
IDLE_EVERY_S = 10.0
MPS_EVERY_S = 2.0


class GpuMonitor:
    """Connects the sensors of the GPUs with the jobs that hold them."""

    def __init__(
        self,
        control: Control,
        sensors: GpuSensors,
        settings: GpuSettings,
        home: Path,
        mps: MpsDaemons | None = None,
        devices: DevicesByNode | None = None,
    ) -> None:
        """`devices` are those of each node by name, where some GPU is partitioned or may be."""
        self.telemetry = GpuTelemetry(home, sensors.gpus, settings.idle.below_percent, settings.every_s)
        self.settings = settings
        self._control = control
        self._sensors = sensors
        self._home = home
        self._devices = devices or {}
        self._mps = mps
        self._mps_due_s = 0.0
        self._idle = IdleWatch(settings.idle)
        self._idle_due_s = 0.0
        self._told: dict[JobId, set[tuple[str, float]]] = {}
        self.on_xid: Callable[[int, int], None] = lambda gpu, number: None
        """Called with the GPU and the number of each critical error."""

    async def run(self) -> None:
        """Sample until cancelled; what is not written is written then."""
        due = time.monotonic()
        try:
            while self.settings.every_s > 0:
                samples, xids = await asyncio.to_thread(self._look)
                self.step(samples, xids, clock.now_s())
                await self._watch_mps(clock.now_s())
                due = max(due + self.settings.every_s, time.monotonic())
                await asyncio.sleep(due - time.monotonic())
        finally:
            self.telemetry.close(clock.now_s())

    def _look(self) -> tuple[list[Any], list[tuple[int, int]]]:
        return self._sensors.look(time.monotonic()), self._sensors.xids()

    async def _watch_mps(self, now_s: float) -> None:
        if self._mps is not None and now_s >= self._mps_due_s:
            self._mps_due_s = now_s + MPS_EVERY_S
            takes_all = self.settings.mps is MpsUse.ALL
            in_use = {
                index
                for index, holders in self.holders().items()
                if any(takes_all or not (holder.alone or holder.in_turn) for holder in holders)
            }
            await asyncio.to_thread(self._mps.watch, in_use, now_s)

    def step(self, samples: list[Any], xids: list[tuple[int, int]], now_s: float) -> None:
        """Take in a sample of all GPUs, and the critical errors since the last one."""
        holders = self.holders()
        self.telemetry.take(samples, holders, now_s)
        for index, number in xids:
            jobs = self.telemetry.note_xid(index, number, holders, now_s)
            self.on_xid(index, number)
            log.warning("gpu-error", extra={"gpu": index, "xid": number, "jobs": list(jobs) or None})
            for job_id in jobs:
                self.warn(job_id, "xid", f"GPU {index} reported the critical error Xid {number}", now_s)
        on_gpus = {holder.job_id: holder for each in holders.values() for holder in each}
        for job_id, holder in on_gpus.items():
            self._pass_on(job_id, holder.attempt)
        for job_id in [job_id for job_id in self._told if job_id not in on_gpus]:
            del self._told[job_id]
        if self._idle.is_on and now_s >= self._idle_due_s:
            self._idle_due_s = now_s + min(IDLE_EVERY_S, max(self._idle.rule.for_s, self._idle.rule.grace_s) / 2)
            self._check_idle(set(on_gpus), now_s)

    def holders(self) -> dict[int, list[GpuHolder]]:
        """Return the running jobs on each whole GPU of this machine."""
        found: dict[int, list[GpuHolder]] = {}
        for job_id, live in list(self._control.state.jobs.items()):  # a plan may be under way in another thread
            if live.state is not JobState.RUNNING or not live.held:
                continue
            record = self._control.kept[job_id]
            for slot in live.held:
                for gpu in self._gpus_of(slot.node, slot.devices):
                    found.setdefault(gpu, []).append(
                        GpuHolder(
                            job_id=job_id,
                            user=record.owner or str(live.job.tenant),
                            attempt=record.attempt,
                            milli=slot.milli,
                            alone=slot.milli == WHOLE,
                            in_turn=slot.in_turn,
                        )
                    )
        return found

    def _gpus_of(self, node: int, devices: int) -> Iterator[int]:
        """Yield the whole GPUs among the devices of a node."""
        if not self._devices:
            yield from device_indexes(devices) if node == 0 else ()
            return
        named = self._devices.get(self._control.state.inventory.nodes[node].node.id, ())
        for index in device_indexes(devices):
            if index < len(named) and not named[index].profile:
                yield named[index].gpu

    def _pass_on(self, job_id: JobId, attempt: int) -> None:
        """Tell what supervisors have warned of since the last look."""
        for path in matching(attempt_folder(self._home, job_id, attempt), "*/*warning.json"):
            try:
                found = read_json(path)
                key = (str(path), float((found or {})["at_s"]))
            except (OSError, ValueError, KeyError, TypeError):
                continue
            if found is not None and key not in self._told.setdefault(job_id, set()):
                self._told[job_id].add(key)
                self._tell(job_id, str(found.get("code")), str(found.get("text")))

    def warn(self, job_id: JobId, code: str, text: str, now_s: float) -> None:
        """Keep a warning with a job, and tell of it."""
        path = self._home / "runs" / job_id / "warnings.json"
        try:
            known = (read_json(path) or {}).get("warnings", [])
            write_json(path, {"warnings": [*known[-99:], {"at_s": now_s, "code": code, "text": text}]})
        except (OSError, ValueError):
            log.warning("a warning could not be kept", extra={"job": job_id, "why": text})
        self._tell(job_id, code, text)

    def _tell(self, job_id: JobId, code: str, text: str) -> None:
        log.warning("job-warning", extra={"job": job_id, "warning": code, "why": text})
        self._control.warn(job_id, text)

    def _check_idle(self, on_gpus: set[JobId], now_s: float) -> None:
        self._idle.forget(on_gpus)
        rule = self._idle.rule
        for job_id in sorted(on_gpus):
            live = self._control.state.jobs[job_id]
            busy = self.telemetry.busy_of(job_id, now_s - rule.for_s)
            match self._idle.check(job_id, busy, live.run_s(now_s), now_s):
                case IdleStep.WARN:
                    self.warn(job_id, "idle-gpus", self._idle.words(busy or 0.0), now_s)
                case IdleStep.ACT:
                    self._end_idle(live, busy or 0.0, now_s)
                case None:
                    pass

    def _end_idle(self, live: LiveJob, busy: float, now_s: float) -> None:
        """Stop an idle job, or suspend it: it saves, and is held until it is released."""
        job_id, record = live.job.id, self._control.kept[live.job.id]
        why = f"its GPUs were idle: busy for {busy:.1f}% of the time"
        if self._idle.rule.action is IdleAction.STOP:
            record.message, record.failure = f"stopped: {why}", "idle-gpus"
            self._control.happened(LoopEntry([JobCancelled(job_id)]))
        elif can_resume(live.job):
            record.message = f"suspended: {why}; release it to let it go on"
            self._control.hold_when_stopped(job_id)
            self._control.happened(LoopEntry([JobRequeued(job_id)]))
        else:
            why = f"{why}; it is not suspended, since it saves no checkpoint and would start over"
        self.warn(job_id, "idle-gpus", why, now_s)

    def busy_by_job(self, index: int) -> dict[JobId, float]:
        """Return how busy the processes of each job kept a GPU since the last call, in percent."""
        found: dict[JobId, float] = {}
        for pid, busy in self._sensors.busy_by_process(index).items():
            job_id = job_of_process(pid)
            if job_id is not None:
                found[JobId(job_id)] = found.get(JobId(job_id), 0.0) + busy
        return found

    def job_report(self, job_id: JobId) -> dict[str, Any]:
        """Return what is known of a job's GPUs: series, energy, warnings."""
        return job_report(self._home, job_id, self.settings, self.telemetry)


def job_of_process(pid: int) -> str | None:
    """Return the job whose variables a process has; None if it has none, or may not be looked at."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    found = [each.partition(b"=")[2] for each in variables if each.startswith(b"ROTA_JOB_ID=")]
    return found[0].decode(errors="replace") if found else None


def job_report(
    home: Path, job_id: JobId, settings: GpuSettings | None = None, telemetry: GpuTelemetry | None = None
) -> dict[str, Any]:
    """Return what is kept of a job's GPUs: series, energy, warnings; also where the manager has no GPUs now."""
    from rota.drivers.local.gpu.telemetry import job_series

    energy = energy_of(home, job_id)
    rates = (settings or GpuSettings()).energy
    return {
        "series": job_series(home, job_id) if telemetry is None else telemetry.of_job(job_id),
        "energy": None if energy is None else energy.encode(rates),
        "warnings": warnings_of(home, job_id),
    }
