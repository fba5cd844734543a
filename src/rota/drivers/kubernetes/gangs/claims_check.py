"""Compares what is held with what the API server says, repairs differences, and counts the repairs.

Watches and answers should make every claim true by themselves. This check finds what they missed: a pod whose deletion
was never reported, one that is not known, a slot whose pod is gone, a job of the engine without a gang. A difference
is repaired only if it is still there when it is looked at again, for a list and a watch are never of the same moment.

Pods are listed in small pages with pauses in between, so that the check of tens of thousands of pods is not felt. All
pages are of the moment at which the check began, and are compared with what was known then.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Container
from dataclasses import dataclass, field
from typing import Any

from rota.core.errors import Unavailable
from rota.core.messages.events import Event, Interrupted, JobCancelled, StartFailed, Stopped
from rota.core.model.job import JobId, JobState
from rota.core.state.job_record import LiveJob
from rota.drivers.kubernetes.api.client import ApiRefused
from rota.drivers.kubernetes.gangs.context import DriverContext
from rota.drivers.kubernetes.gangs.gang import Gang, Stage
from rota.drivers.kubernetes.objects.pods import Pod
from rota.drivers.kubernetes.objects.reading import read_pod, uid_of
from rota.store import clock

log = logging.getLogger("rota.drivers.kubernetes")
Json = dict[str, Any]
_GONE = 404
AGAIN_S = 3.0
"""How long a difference must last."""
SHARE = 0.004
"""Part of the time that may be spent on lists: with many pods the check takes longer and comes less often."""
PAGE = 500
"""Pods per page of a list."""
LIST_S = 240.0
"""How long a list may take with all pauses: the API server forgets its state of that moment after 5 minutes."""


@dataclass(slots=True)
class RepairCount:
    """How many claims were repaired since the process began."""

    repairs: int = 0


@dataclass(slots=True)
class _PodDifferences:
    """Pods that the index and the API server see differently."""

    gone: dict[str, Pod] = field(default_factory=dict)
    """Pods of the index that were not listed, by uid."""
    other: dict[str, str] = field(default_factory=dict)
    """Paths of pods that the index does not know, or not as they were listed, by uid."""

    def __bool__(self) -> bool:
        return bool(self.gone or self.other)


class ClaimsCheck:
    """The check of one driver."""

    def __init__(self, context: DriverContext, count: RepairCount, running: Container[str] = ()) -> None:
        self._context = context
        self._count = count
        self._running = running
        """Jobs that this Rota has started, as the driver knows them."""

    async def run(self) -> None:
        """Check until cancelled."""
        every_s = self._context.settings.check_every
        pause_s = every_s
        while True:
            await asyncio.sleep(pause_s)
            began_s, used_s = time.monotonic(), time.process_time()
            try:
                await self.check()
            except Unavailable as error:
                log.warning("claims could not be checked", extra={"why": str(error)})
            due_s = (time.process_time() - used_s) / SHARE - (time.monotonic() - began_s)
            pause_s = max(every_s, due_s)

    async def check(self) -> None:
        """Look twice for differences, and repair those that last."""
        pods = await self._differing_pods()
        slots = self._empty_slots()
        jobs = self._jobs_without_gang()
        if not (pods or slots or jobs):
            return
        await asyncio.sleep(AGAIN_S)
        await self._repair_pods(pods)
        for gang, index in slots & self._empty_slots():
            gang.slots[index].pod, gang.slots[index].bound = None, False
            self._note("a slot was held for a pod that is gone", gang=gang.id)
            self._context.gang_index.touch(gang)
        for name in jobs & self._jobs_without_gang():
            self._release(name)
        self._context.flush()

    async def _differing_pods(self) -> _PodDifferences:
        """Compare the pods that are known now with those that the API server has now."""
        index = self._context.gang_index
        known = index.pods
        found = _PodDifferences(gone=dict(known))
        async for values in self._pages(len(known)):
            for value in values:
                uid = uid_of(value)
                found.gone.pop(uid, None)
                pod = known.get(uid)
                if (pod is None and not index.is_other(uid)) or (pod is not None and _seen(pod) != _said(value)):
                    found.other[uid] = _path_of(value)
        return found

    async def _pages(self, known: int) -> AsyncIterator[list[Json]]:
        """Yield the pods of this scheduler as they are now, page by page, with a pause after each."""
        selector = f"spec.schedulerName={self._context.settings.scheduler_name}"
        longest_s = LIST_S * PAGE / max(known, PAGE)
        used_s = time.process_time()
        async for values in self._context.api.pages("/api/v1/pods", PAGE, fieldSelector=selector):
            yield values
            if len(values) >= PAGE:
                await asyncio.sleep(min((time.process_time() - used_s) / SHARE, longest_s))
            used_s = time.process_time()

    async def _repair_pods(self, pods: _PodDifferences) -> None:
        """Look at each pod by itself, and again after a while if it still differs; then repair it."""
        index = self._context.gang_index
        for uid, pod in pods.gone.items():
            if index.pod(uid) is pod and not await self._context.binder.exists(pod):
                self._note("a pod that is gone was still counted", pod=uid)
                index.gone(uid)
        lasting = {uid: path for uid, path in pods.other.items() if await self._differing(uid, path) is not None}
        if not lasting:
            return
        await asyncio.sleep(AGAIN_S)
        for uid, path in lasting.items():
            known = await self._differing(uid, path)
            if known is not None:
                self._note("a pod was not known as it is", pod=known.name)
                index.see(known)

    async def _differing(self, uid: str, path: str) -> Pod | None:
        """Return a pod as the API server has it now; None if it is known so, or is gone, which the next check sees."""
        try:
            value = await self._context.api.get(path)
        except ApiRefused as error:
            if error.status != _GONE:
                raise
            return None
        index = self._context.gang_index
        pod = index.pod(uid)
        is_known = index.is_other(uid) if pod is None else _seen(pod) == _said(value)
        if uid_of(value) != uid or is_known:
            return None
        return read_pod(value, self._context.settings, self._running)

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


def _path_of(value: Json) -> str:
    return f"/api/v1/namespaces/{value['metadata']['namespace']}/pods/{value['metadata']['name']}"
