"""The pod of a task, and what is opened in it through the API server, with Rota's own rights."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from rota.core.errors import RotaError
from rota.core.model.job import JobId
from rota.drivers.kubernetes.api.client import Api, ApiRefused
from rota.drivers.kubernetes.driver import KubernetesDriver
from rota.drivers.kubernetes.gangs.gang import pod_of_task
from rota.drivers.kubernetes.objects.api_views import main_container
from rota.drivers.kubernetes.objects.gang_jobs import tenant_of, user_of
from rota.drivers.kubernetes.objects.pod_annotations import JOB_ID
from rota.drivers.kubernetes.objects.pods import Pod, PodPhase
from rota.drivers.kubernetes.sessions.channels import V4, V5, PodSocket
from rota.drivers.kubernetes.settings import ClusterSettings

Json = dict[str, Any]
NOT_FOUND = 404


class NoPod(RotaError):
    """There is no pod of a task that runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPod:
    """The pod of a task, as the API server has it, and the container in it that does the task's work."""

    uid: str
    path: str
    container: str
    has_input: bool
    """Whether the container's own input can be written to (`stdin` in its pod)."""
    tty: bool
    exit_code: int | None
    """How the container ended; None while it runs."""

    @property
    def has_terminal(self) -> bool:
        """Whether one can attach to it in order to type."""
        return self.has_input or self.tty


class PodSessions:
    """Opens commands, terminals and ports in the pods of one term's jobs."""

    def __init__(self, api: Api, driver: KubernetesDriver, settings: ClusterSettings) -> None:
        self._api = api
        self._driver = driver
        self._settings = settings

    async def find(self, job_id: JobId, task: int, *, tenant: str, owner: str, ended: bool = False) -> TaskPod:
        """Return the pod of a task; with `ended` also one that no longer runs. Raises `NoPod` if there is none.

        A pod that joined the job in another user's name is refused, as the job's owner has no right to it.
        """
        members = self._members(job_id, ended=ended)
        fit = [pod for pod in members if pod.phase is PodPhase.RUNNING and not pod.ending]
        pod = pod_of_task(fit, task)
        if pod is None and ended:
            pod = pod_of_task([pod for pod in members if pod.node is not None], task)
        if pod is None:
            raise NoPod(f"task {task} of job {job_id} has no pod that runs")
        if (tenant_of(pod, self._settings), user_of(pod)) != (tenant, owner):
            raise RotaError(f"pod {pod.name} of task {task} is in another user's or tenant's name than job {job_id}")
        return await self._seen(pod.path, pod.uid)

    async def again(self, pod: TaskPod) -> TaskPod:
        """Return a pod as it is by now; raises `NoPod` once it is gone."""
        return await self._seen(pod.path, pod.uid)

    def _members(self, job_id: JobId, *, ended: bool) -> list[Pod]:
        """Return the pods of a job; one that has ended is no longer in the index, but its pods say whose they were."""
        index = self._driver.gang_index
        gang = index.by_job.get(job_id)
        if gang is not None:
            return list(gang.members.values())
        if not ended:
            return []
        return [pod for each in index.gangs for pod in each.members.values() if pod.annotations.get(JOB_ID) == job_id]

    async def _seen(self, path: str, uid: str) -> TaskPod:
        name = path.rpartition("/")[2]
        try:
            value = await self._api.get(path)
        except ApiRefused as error:
            if error.status != NOT_FOUND:
                raise
            raise NoPod(f"pod {name} is gone") from None
        if value["metadata"]["uid"] != uid:
            raise NoPod(f"pod {name} is gone")
        chosen = main_container(value, self._settings.devices)
        container = next(each for each in value["spec"]["containers"] if each["name"] == chosen)
        return TaskPod(
            uid=uid,
            path=path,
            container=chosen,
            has_input=bool(container.get("stdin")),
            tty=bool(container.get("tty")),
            exit_code=_exit_code(value, chosen),
        )

    async def exec(self, pod: TaskPod, argv: Sequence[str], *, tty: bool) -> PodSocket:
        """Start a command in the container of a task."""
        words = [("command", word) for word in argv]
        return await self._open(pod, "exec", words + _streams(tty=tty, stdin=True))

    async def attach(self, pod: TaskPod, *, watch: bool) -> PodSocket:
        """Connect to the streams of the task itself; with `watch` not to its input."""
        return await self._open(pod, "attach", _streams(tty=pod.tty, stdin=pod.has_input and not watch))

    async def port(self, pod: TaskPod, port: int) -> PodSocket:
        """Connect to a port of the pod, on its own loopback."""
        return PodSocket(await self._api.socket(f"{pod.path}/portforward", [("ports", str(port))], [V4]))

    async def _open(self, pod: TaskPod, what: str, params: list[tuple[str, str]]) -> PodSocket:
        wanted = [("container", pod.container), *params]
        return PodSocket(await self._api.socket(f"{pod.path}/{what}", wanted, [V5, V4]))

    def output(self, pod: TaskPod) -> AsyncIterator[bytes]:
        """Return what the container of a task has written so far, as far as its node keeps it."""
        return self._api.stream(f"{pod.path}/log", container=pod.container)


def _streams(*, tty: bool, stdin: bool) -> list[tuple[str, str]]:
    asked = {"stdin": stdin, "stdout": True, "stderr": not tty, "tty": tty}
    return [(name, "true") for name, is_asked in asked.items() if is_asked]


def _exit_code(value: Json, container: str) -> int | None:
    for each in (value.get("status") or {}).get("containerStatuses") or ():
        if each.get("name") == container:
            ended = (each.get("state") or {}).get("terminated") or {}
            code = ended.get("exitCode")
            return int(code) if code is not None else None
    return None
