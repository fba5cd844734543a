"""Reports to users through Kubernetes: conditions and Events of waiting pods, status of PodGroups."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from rota.core.errors import RotaError, Unavailable
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import JobId
from rota.drivers.kubernetes.api.client import MERGE, STRATEGIC, Api, ApiRefused
from rota.drivers.kubernetes.gangs.gang import Gang, GangSource, Stage
from rota.drivers.kubernetes.gangs.gang_index import GangIndex
from rota.drivers.kubernetes.gangs.pod_events import post_event, stamp
from rota.drivers.kubernetes.objects.api_views import EXPECTED
from rota.drivers.kubernetes.objects.controller_sizes import POD_GROUPS
from rota.drivers.kubernetes.objects.pods import Pod, PodPhase
from rota.store import clock

log = logging.getLogger("rota.drivers.kubernetes")
Json = dict[str, Any]
EVERY_S = 0.5
"""Time between the beginnings of two rounds."""
LEAST_PAUSE_S = 0.05
AFTER_S = 0.5
"""Minimum wait of a gang before its reason is reported."""
AGAIN_S = 30.0
"""Minimum interval between updates that change only the numbers of a reason."""
MOST_AT_ONCE = 125
"""Pods updated per round: 250 a second, if the API server writes as fast."""
WRITES_AT_ONCE = 16
"""Writes under way at a time, so that binds take precedence."""
LOOKED_AT = 500
"""Gangs looked at per round besides those that changed: with many of them the rounds share the work."""
PRUNE_EVERY = 120
"""Rounds between two removals of gangs that are gone."""
INCOMPLETE, REFUSED, SPARE = "gang-incomplete", "refused", "spare"
FORESEE_S = 5.0
"""Minimum wait of a job before its start is forecast, and pause between two forecasts."""
FORESEE_AGAIN_S = 60.0
MOST_FORESEEN = 200
"""With more waiting jobs than this no forecasts are written; they would cost too much."""


class ReportedState:
    """What was last reported to a gang's pods."""

    __slots__ = ("at_s", "code", "foreseen_s", "group", "pods", "sentence")

    def __init__(self) -> None:
        self.code, self.sentence, self.at_s, self.foreseen_s = "", "", 0.0, 0.0
        self.pods: set[str] = set()
        self.group: Json = {}


class ReasonChange(NamedTuple):
    """A reason that pods have still to be told; `told` are all that know it then."""

    code: str
    sentence: str
    pods: list[Pod]
    told: set[str]
    is_new: bool


class Reporter:
    """Reports changed reasons of waiting gangs, a bounded number per round."""

    def __init__(
        self,
        api: Api,
        gang_index: GangIndex,
        explain: Callable[[JobId], Reason | None],
        foresee: Callable[[JobId], Awaitable[Json | None]],
        *,
        steps: Callable[[], int],
        identity: str = "rota",
    ) -> None:
        self._api = api
        self._gang_index = gang_index
        self._explain = explain
        self._foresee = foresee
        self._steps = steps
        """The number of steps of the engine: without one no reason changes."""
        self._identity = identity
        self._reported: dict[Gang, ReportedState] = {}
        self._later: dict[Gang, None] = {}
        """Gangs that changed and were not looked at yet."""
        self._groups: dict[Gang, None] = {}
        """Gangs with a PodGroup."""
        self._position = 0
        self._began_at = -1
        """The step at which the present round through all gangs began."""
        self._is_settled = False
        """Whether all gangs have been looked at since the last step, and know all that there is to say."""
        self._rounds = 0
        self._room = asyncio.Semaphore(WRITES_AT_ONCE)

    async def run(self) -> None:
        """Report until cancelled."""
        pause_s = EVERY_S
        while True:
            await asyncio.sleep(pause_s)
            began_s = time.monotonic()
            try:
                await self.round(clock.now_s())
            except Unavailable as error:
                log.warning("could not report reasons to pods", extra={"why": str(error)})
                began_s = time.monotonic()
            pause_s = max(EVERY_S - (time.monotonic() - began_s), LEAST_PAUSE_S)

    async def round(self, now_s: float) -> None:
        """Report on the gangs that changed, and on some of the others in turn."""
        gangs = self._gang_index.gangs
        self._prune(gangs)
        due: list[tuple[Gang, ReasonChange]] = []
        room = MOST_AT_ONCE
        for gang in self._next_gangs(gangs, now_s):
            if room <= 0:
                self._later[gang] = None
                continue
            change = self._change(gang, now_s)
            if change is not None:
                due.append((gang, change))
                room -= len(change.pods)
        done = await asyncio.gather(
            *(self._report(gang, change, now_s) for gang, change in due), return_exceptions=True
        )
        for gang in list(self._groups):
            await self._report_group(gang)
        for error in done:
            if error is not None:
                self._put_off()
                raise error

    def _next_gangs(self, gangs: list[Gang], now_s: float) -> list[Gang]:
        """Those that changed and have waited long enough to be told, then a part of all in turn."""
        changed = self._gang_index.take_changed()
        self._later.update(changed)
        self._groups.update(dict.fromkeys(gang for gang in changed if gang.key.source is GangSource.GROUP))
        fresh = [gang for gang in self._later if now_s >= gang.touched_s + AFTER_S]
        for gang in fresh:
            del self._later[gang]
        return list(dict.fromkeys((*fresh, *self._in_turn(gangs))))

    def _in_turn(self, gangs: list[Gang]) -> list[Gang]:
        """The next part of all gangs; none if nothing has happened since all were looked at."""
        if self._position >= len(gangs):
            self._position = 0
        if self._position == 0:
            steps = self._steps()
            if self._is_settled and steps == self._began_at:
                return []
            self._began_at, self._is_settled = steps, True
        first = self._position
        self._position = first + LOOKED_AT
        return gangs[first : first + LOOKED_AT]

    def _put_off(self) -> None:
        """Look at all gangs once more: some could not be told yet."""
        self._is_settled = False

    def _prune(self, gangs: list[Gang]) -> None:
        self._rounds += 1
        if self._rounds % PRUNE_EVERY == 0:
            there = set(gangs)
            self._reported = {gang: reported for gang, reported in self._reported.items() if gang in there}
            self._groups = {gang: None for gang in self._groups if gang in there}

    def _change(self, gang: Gang, now_s: float) -> ReasonChange | None:
        """What a gang's pods have to be told; None if they know it."""
        waiting = _unassigned(gang)
        if not waiting or now_s < gang.touched_s + AFTER_S:
            return None
        reason = self._reason(gang)
        if reason is None:
            self._put_off()
            return None
        reported = self._reported.setdefault(gang, ReportedState())
        code, sentence = reason
        is_new = code != reported.code or (sentence != reported.sentence and now_s >= reported.at_s + AGAIN_S)
        if not is_new and sentence != reported.sentence:
            self._put_off()
        pods = waiting if is_new else [pod for pod in waiting if pod.uid not in reported.pods]
        return ReasonChange(code, sentence, pods, {pod.uid for pod in waiting}, is_new) if pods else None

    async def _report(self, gang: Gang, change: ReasonChange, now_s: float) -> None:
        """Tell a gang's pods why they wait: a condition for each, and one Event for the gang."""
        text = f"{change.code}: {change.sentence}"
        await asyncio.gather(*(self._condition(pod, text) for pod in change.pods))
        reported = self._reported.setdefault(gang, ReportedState())
        reported.code, reported.sentence, reported.at_s = change.code, change.sentence, now_s
        reported.pods = change.told
        if change.is_new:
            async with self._room:
                await post_event(self._api, change.pods[0], "FailedScheduling", text, self._identity)

    def _reason(self, gang: Gang) -> tuple[str, str] | None:
        if gang.refused:
            return REFUSED, gang.refused
        if gang.stage is Stage.PLACED:
            return SPARE, f"its job runs with {len(gang.slots)} tasks now; this pod starts when the job grows"
        if gang.stage is Stage.WAITING and gang.barred:
            return ReasonCode.NO_MATCHING_NODE.value, gang.barred
        if gang.stage is Stage.WAITING:
            reason = self._explain(gang.id)
            return None if reason is None else (reason.code.value, reason.sentence())
        if gang.size is None:
            return INCOMPLETE, "its number of pods is unknown; label them with rota.dev/tasks"
        return INCOMPLETE, f"{len(gang.waiting)} of {gang.size} pods exist; all start together"

    async def forecast_starts(self) -> None:
        """Write the expected start onto the first pod of each waiting job, in turn, until cancelled."""
        while True:
            await asyncio.sleep(FORESEE_S)
            waiting = [gang for gang in self._gang_index.gangs if gang.stage is Stage.WAITING]
            now_s = clock.now_s()
            due = [gang for gang in waiting if self._is_due(gang, now_s)] if len(waiting) <= MOST_FORESEEN else []
            if due:
                gang = min(
                    due, key=lambda gang: (self._reported.setdefault(gang, ReportedState()).foreseen_s, gang.touched_s)
                )
                self._reported[gang].foreseen_s = now_s
                try:
                    await self._report_start(gang)
                except (RotaError, Unavailable) as error:  # a forecast that failed, for one, as the database was away
                    log.warning("could not report the expected start to a pod", extra={"why": str(error)})

    def _is_due(self, gang: Gang, now_s: float) -> bool:
        last_s = self._reported[gang].foreseen_s if gang in self._reported else 0.0
        return bool(gang.waiting) and now_s >= max(gang.touched_s + FORESEE_S, last_s + FORESEE_AGAIN_S)

    async def _report_start(self, gang: Gang) -> None:
        expected = await self._foresee(gang.id)
        if expected is not None and gang.stage is Stage.WAITING and gang.waiting:
            condition = {"type": EXPECTED, "status": "True", "reason": "Forecast", "message": json.dumps(expected)}
            await self._patch(gang.waiting[0], condition)

    async def _condition(self, pod: Pod, message: str) -> None:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        await self._patch(pod, condition)

    async def _patch(self, pod: Pod, condition: Json) -> None:
        condition["lastTransitionTime"] = stamp()
        try:
            async with self._room:
                await self._api.patch(f"{pod.path}/status", {"status": {"conditions": [condition]}}, STRATEGIC)
        except ApiRefused as error:
            if error.status not in (403, 404, 422):  # one pod that takes no condition keeps no other from its own
                raise

    async def _report_group(self, gang: Gang) -> None:
        phases = [pod.phase for pod in gang.members.values()]
        reason = self._reason(gang) if gang.stage in (Stage.GATHERING, Stage.WAITING) else None
        status: Json = {
            "phase": _PHASES[gang.stage] if not gang.started else "Running",
            "pods": len(phases),
            "running": sum(phase is PodPhase.RUNNING for phase in phases),
            "reason": None if reason is None else reason[0],
            "message": None if reason is None else reason[1],
        }
        reported = self._reported.setdefault(gang, ReportedState())
        if reported.group == status:
            return
        path = f"{POD_GROUPS}/namespaces/{gang.key.namespace}/podgroups/{gang.key.name}/status"
        try:
            await self._api.patch(path, {"status": status}, MERGE)
        except ApiRefused as error:
            if error.status != 404:
                raise
        reported.group = status


_PHASES = {
    Stage.GATHERING: "Gathering",
    Stage.WAITING: "Waiting",
    Stage.PLACED: "Starting",
    Stage.LEAVING: "Leaving",
    Stage.OVER: "Over",
}


def _unassigned(gang: Gang) -> list[Pod]:
    """Waiting pods that get a reason."""
    if gang.stage in (Stage.GATHERING, Stage.WAITING):
        return gang.waiting
    is_elastic = gang.stage is Stage.PLACED and gang.job is not None and gang.job.elastic is not None
    return [pod for pod in gang.waiting if pod.uid not in gang.assigned] if is_elastic else []
