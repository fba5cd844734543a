"""Assembly of incomplete gangs: which pods are missing, the expected size, and the time limit."""

from __future__ import annotations

import asyncio

from rota.core.errors import RotaError, Unavailable
from rota.core.messages.events import JobArrived, JobCancelled, JobReleased, JobUpdated
from rota.core.model.job import JobId
from rota.drivers.kubernetes.api.client import MissingRight
from rota.drivers.kubernetes.gangs.context import DriverContext
from rota.drivers.kubernetes.gangs.gang import Gang, GangSource, Stage
from rota.drivers.kubernetes.gangs.narrowing import Narrowing
from rota.drivers.kubernetes.objects.binding_annotations import requests_by_role
from rota.drivers.kubernetes.objects.controller_sizes import (
    Json,
    ask_size,
    has_ended,
    made,
    maker_path,
    owes_pods,
    tasks_of,
)
from rota.drivers.kubernetes.objects.gang_jobs import job_id, job_of, widened
from rota.drivers.kubernetes.objects.pod_annotations import JOB_ID, PLACEMENT
from rota.drivers.kubernetes.objects.pods import Pod, PodPhase
from rota.store import clock

_WAITS_FOR_GROUP = frozenset({GangSource.GROUP, GangSource.VOLCANO, GangSource.KAI})
GROUP_S = 2.0
"""Interval between two look-ups of a PodGroup that does not exist yet."""
OWNER_S = 1.0
"""Interval between two looks at the controller of missing pods."""
OWNER_SLOW_S, SLOW_AFTER_S = 5.0, 30.0
"""The same once they have been missing for a while."""


class GangAssembly:
    """Assembles gangs from their first pod until the engine knows them, and again after pods were lost."""

    def __init__(self, context: DriverContext, narrowing: Narrowing) -> None:
        self._context = context
        self._narrowing = narrowing

    def gather(self, gang: Gang) -> None:
        """Announce a gang to the engine once it is complete."""
        if gang.left_alone and any(pod.holds for pod in gang.members.values()):
            return
        gang.left_alone = False
        self._clear_strays(gang)
        if gang.size is None and gang.waiting:
            self._find_size(gang)
        if not gang.is_whole:
            if gang.lost_pods and gang.waiting and gang.size is not None and not gang.asked_size:
                gang.lost_pods, gang.asked_size = False, True
                self._context.work.do(self._ask_size_again(gang), writes=False)
            if gang.job is not None:
                self.linger(gang)
            elif not gang.members:
                self._context.gang_index.retire(gang)
            return
        gang.deadline_s = None
        pods = [*gang.waiting, *gang.finished][: gang.size]
        if gang.job is not None and self._is_same_job(gang, pods):
            gang.stage = Stage.WAITING
            gang.role_requests = requests_by_role(pods)
            job = self._narrowing.first(gang, gang.job, pods)
            if job.roles != gang.job.roles:
                gang.job = job
                self._context.report.events.append(JobUpdated(gang.id, job))
            self._context.report.events.append(JobReleased(gang.id))
            return
        self._announce(gang, pods)

    def _is_same_job(self, gang: Gang, pods: list[Pod]) -> bool:
        """Whether the pods match the job that the engine knows in number and resources."""
        assert gang.job is not None
        try:
            roles = job_of(gang, pods, self._context.settings, gang.id).roles
            return roles == tuple(widened(role) for role in gang.job.roles)
        except RotaError:
            return False

    def _clear_strays(self, gang: Gang) -> None:
        """Evict pods that were bound for an earlier placement, so that new ones can replace them."""
        for pod in gang.members.values():
            is_of_another = gang.job is not None and pod.annotations.get(JOB_ID) != gang.id
            if pod.holds and not pod.ending and PLACEMENT in pod.annotations and not is_of_another:
                pod.ending = True
                self._context.work.do(self._context.binder.evict(pod))

    def _announce(self, gang: Gang, pods: list[Pod]) -> None:
        assert self._context.sink is not None
        if gang.job is not None:  # the pods' requests changed, so it is another job
            self._context.report.events.append(JobCancelled(gang.id))
            self._context.gang_index.by_job.pop(gang.id, None)
        name = job_id(gang, pods)
        tries = 1
        unique = name
        while (
            unique in self._context.gang_index.by_job
            or unique in self._context.report.arriving
            or self._context.sink.is_used(unique)
        ):
            tries += 1
            unique = JobId(f"{name}.{tries}")
        gang.refused = next((pod.wants.refused for pod in pods if pod.wants.refused), "") or self._unserved(pods)
        try:
            job = job_of(gang, pods, self._context.settings, unique)
            gang.refused = gang.refused or self._context.sink.refuse(job) or ""
        except RotaError as error:
            gang.refused = str(error)
        if gang.refused:
            return
        gang.role_requests = requests_by_role(pods)
        for pod in self._context.claim_binder.stale(pods):
            self._context.work.do(self._context.claim_binder.give_back(pod))
        job = self._narrowing.first(gang, job, pods)
        gang.job, gang.stage = job, Stage.WAITING
        self._context.gang_index.by_job[unique] = gang
        self._context.report.arriving[unique] = gang
        self._context.report.events.append(JobArrived(job))

    def _unserved(self, pods: list[Pod]) -> str:
        """What pods ask for that this API server does not know, in words."""
        if self._context.places.world.devices.is_served or not any(pod.wants.needs.claims for pod in pods):
            return ""
        return "resourceClaims: this API server does not serve resource.k8s.io/v1, which release 1.34 brought"

    def _find_size(self, gang: Gang) -> None:
        """Ask the controller for the gang size; with an unknown controller, wait until no more pods arrive."""
        if gang.asked_size:
            return
        gang.asked_size = True
        self._context.work.do(self._learn_size(gang), writes=False)

    async def _learn_size(self, gang: Gang) -> None:
        while gang.size is None and gang.members:
            gang.size = await ask_size(self._context.api, gang)
            if gang.size is None and gang.key.source in _WAITS_FOR_GROUP:
                await asyncio.sleep(GROUP_S)
            elif gang.size is None:
                quiet_s = clock.now_s() - gang.touched_s
                if quiet_s < self._context.settings.settle:
                    await asyncio.sleep(self._context.settings.settle - quiet_s)
                else:
                    gang.size = len(gang.waiting) or None
        gang.asked_size = False
        self._context.gang_index.touch(gang)
        self._context.flush()

    async def _ask_size_again(self, gang: Gang) -> None:
        """Ask the controller of a gang with missing pods whether it wants fewer now."""
        wanted = await ask_size(self._context.api, gang)
        gang.asked_size = False
        if wanted is not None and wanted != gang.size and gang.stage is Stage.GATHERING:
            gang.size = wanted
            self._context.gang_index.touch(gang)
            self._context.flush()

    def linger(self, gang: Gang) -> None:
        """Keep a job without pods for a while if a controller may create new ones."""
        if any(not pod.phase.is_over for pod in gang.members.values()):
            gang.deadline_s = None
        elif gang.deadline_s is None:
            gang.deadline_s = clock.now_s() + (self._context.settings.linger if gang.may_come_back else 0.0)
            self.watch_owner(gang)

    def watch_owner(self, gang: Gang) -> None:
        """Watch for the end of a controller, so that its gang does not wait for pods in vain."""
        path = maker_path(gang)
        if path is not None and not gang.watched:
            gang.watched = True
            self._context.work.do(self._await_end(gang, path), writes=False)

    async def _await_end(self, gang: Gang, path: str) -> None:
        began_s = clock.now_s()
        while gang.deadline_s is not None and gang.stage in (Stage.GATHERING, Stage.PLACED):
            pause_s = OWNER_S if clock.now_s() < began_s + SLOW_AFTER_S else OWNER_SLOW_S
            try:
                value = await self._context.api.get(path)
                ended = has_ended(value) or not made(gang, value) or self._is_smaller(gang, value)
                if not ended and gang.stage is Stage.GATHERING and gang.deadline_s is not None and owes_pods(value):
                    gang.deadline_s = clock.now_s() + self._context.settings.linger + pause_s
            except Unavailable as error:
                ended = getattr(error, "status", 0) == 404
            except MissingRight:
                break
            if ended and gang.deadline_s is not None:
                gang.deadline_s = clock.now_s()
                break
            await asyncio.sleep(pause_s)
        gang.watched = False

    def _is_smaller(self, gang: Gang, owner: Json) -> bool:
        """Whether no pod is missing any more because fewer are wanted."""
        is_its = gang.stage is Stage.PLACED and gang.key.source is GangSource.OWNER
        return is_its and self._context.gang_index.does_without(gang, tasks_of(owner))

    def expire(self, gang: Gang) -> None:
        """End a job whose pods were not recreated in time."""
        context = self._context
        if any(pod.phase is PodPhase.FAILED for pod in gang.members.values()):
            context.fail(gang, context.done_work(gang))
        else:
            context.report.why[gang.id] = "its pods are gone"
            context.report.events.append(JobCancelled(gang.id))
            gang.stage = Stage.OVER
        context.gang_index.touch(gang)
