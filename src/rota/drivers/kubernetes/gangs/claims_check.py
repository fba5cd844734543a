"""Compares what is held with what the API server says, repairs differences, and counts the repairs.

Watches and answers should make every claim true by themselves. This check finds what they missed: a pod whose deletion
was never reported, one that is not known, a slot whose pod is gone, a job of the engine without a gang. A difference
is repaired only if it is still there when it is looked at again, for a list and a watch are never of the same moment.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from rota.core.errors import Unavailable
from rota.core.messages.events import Event, Interrupted, JobCancelled, StartFailed, Stopped
from rota.core.model.job import JobId, JobState
from rota.core.state.job_record import LiveJob
from rota.drivers.kubernetes.gangs.context import DriverContext
from rota.drivers.kubernetes.gangs.gang import Gang, Stage
from rota.drivers.kubernetes.objects.pods import Pod
from rota.drivers.kubernetes.objects.reading import read_pod
from rota.store import clock

log = logging.getLogger("rota.drivers.kubernetes")
Json = dict[str, Any]
AGAIN_S = 3.0
"""How long a difference must last."""
SHARE = 0.004
"""Part of the time that may be spent on lists: with many pods the check comes less often."""


@dataclass(slots=True)
class RepairCount:
    """How many claims were repaired since the process began."""

    repairs: int = 0


class ClaimsCheck:
    """The check of one driver."""

    def __init__(self, context: DriverContext, count: RepairCount, running: Container[str] = ()) -> None:
        self._context = context
        self._count = count
        self._running = running
        """Jobs that this Rota has started, as the driver knows them."""
        self._last: dict[str, Json] = {}
        """The pods of the last list, by uid."""

    async def run(self) -> None:
        """Check until cancelled."""
        pause_s = self._context.settings.check_every
        while True:
            await asyncio.sleep(pause_s)
            began_s = time.process_time()
            try:
                await self.check()
            except Unavailable as error:
                log.warning("claims could not be checked", extra={"why": str(error)})
            pause_s = max(self._context.settings.check_every, (time.process_time() - began_s) / SHARE)

    async def check(self) -> None:
        """Look twice for differences, and repair those that last."""
        pods = await self._differing_pods()
        slots = self._empty_slots()
        jobs = self._jobs_without_gang()
        if not (pods or slots or jobs):
            return
        await asyncio.sleep(AGAIN_S)
        pods &= await self._differing_pods()
        for uid in pods:
            await self._repair_pod(uid)
        for gang, index in slots & self._empty_slots():
            gang.slots[index].pod, gang.slots[index].bound = None, False
            self._note("a slot was held for a pod that is gone", gang=gang.id)
            self._context.gang_index.touch(gang)
        for name in jobs & self._jobs_without_gang():
            self._release(name)
        self._context.flush()

    async def _differing_pods(self) -> set[str]:
        """Pods of this scheduler that the index and the API server see differently."""
        settings = self._context.settings
        selector = f"spec.schedulerName={settings.scheduler_name}"
        values, _ = await self._context.api.everything("/api/v1/pods", fieldSelector=selector)
        there = {value["metadata"]["uid"]: value for value in values}
        known = self._context.gang_index.pods
        found = {uid for uid in known if uid not in there}
        for uid, value in there.items():
            pod = known.get(uid)
            if pod is None:
                found |= set() if self._context.gang_index.is_other(uid) else {uid}
            elif _seen(pod) != _said(value):
                found.add(uid)
        self._last = there
        return found

    async def _repair_pod(self, uid: str) -> None:
        value = self._last.get(uid)
        pod = self._context.gang_index.pods.get(uid)
        if value is None and pod is not None:
            if await self._context.binder.exists(pod):  # it names another scheduler than it did when it was bound
                return
            self._note("a pod that is gone was still counted", pod=uid)
            self._context.gang_index.gone(uid)
        elif value is not None:
            known = read_pod(value, self._context.settings, self._running)
            if known is not None:
                self._note("a pod was not known as it is", pod=known.name)
                self._context.gang_index.see(known)

    def _empty_slots(self) -> set[tuple[Gang, int]]:
        """Slots that count as bound, though their pod is gone."""
        return {
            (gang, index)
            for gang in self._context.gang_index.gangs
            if gang.stage is Stage.PLACED
            for index, slot in enumerate(gang.slots)
            if slot.bound and slot.outcome is None and slot.pod not in gang.members
        }

    def _jobs_without_gang(self) -> set[JobId]:
        """Jobs that hold devices in the engine, but have no gang that could; none while events are on their way."""
        assert self._context.sink is not None
        if not self._context.sink.is_settled or self._context.report.events:
            return set()
        return {
            name
            for name, live in self._context.sink.state.jobs.items()
            if live.held and not self._is_held(self._context.gang_index.by_job.get(name))
        }

    def _is_held(self, gang: Gang | None) -> bool:
        return gang is not None and gang.stage in (Stage.PLACED, Stage.LEAVING, Stage.OVER)

    def _release(self, name: JobId) -> None:
        """Tell the engine that a job is gone."""
        assert self._context.sink is not None
        self._note("devices were held for a job without pods", job=name)
        live = self._context.sink.state.jobs[name]
        self._context.report.why[name] = "its pods are gone"
        self._context.report.events.append(_answer(name, live))
        if self._context.gang_index.by_job.get(name) is None:
            self._context.report.events.append(JobCancelled(name))

    def _note(self, what: str, **about: object) -> None:
        self._count.repairs += 1
        log.warning("repaired: %s", what, extra=dict(about))


def _answer(name: JobId, live: LiveJob) -> Event:
    """The answer that the engine waits for, or the report that a job was lost."""
    if live.is_leaving:
        return Stopped(name, live.work_done(clock.now_s()))
    if live.state is JobState.STARTING:
        return StartFailed(name, "its pods are gone", clock.now_s())
    return Interrupted(name, live.work_done(clock.now_s()))


def _seen(pod: Pod) -> tuple[str | None, bool, bool]:
    return pod.node, pod.ending, pod.phase.is_over


def _said(value: Json) -> tuple[str | None, bool, bool]:
    is_over = (value.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return value["spec"].get("nodeName") or None, value["metadata"].get("deletionTimestamp") is not None, is_over
