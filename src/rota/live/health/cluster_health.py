"""The health of the nodes of a Kubernetes cluster: from their conditions, and from what fails there.

Conditions that other programs write drain a node. A node on which jobs of several users fail, and rather it than they
is at fault, is marked as suspect on its object, where others see it too.
"""

from __future__ import annotations

from collections.abc import Mapping

from rota.core.messages.events import End, Event, Interrupted, JobEnded
from rota.core.model.job import JobId, NodeId
from rota.drivers.kubernetes.api.client import Api
from rota.drivers.kubernetes.gangs.gang_controller import PODS_MISSING
from rota.drivers.kubernetes.gangs.node_cache import NodeCache
from rota.health.blame import RunEnd
from rota.health.causes import Blame, diagnose
from rota.health.node_state import NodeHealthState
from rota.health.run_memory import RunMemory
from rota.live.health.node_marks import NodeMarks
from rota.live.loop.control import Control
from rota.live.loop.kubernetes_loop import KubernetesLoop


class ClusterHealth:
    """Weighs the ends of all runs, and has nodes marked."""

    def __init__(self, control: Control, api: Api, cache: NodeCache, loop: KubernetesLoop) -> None:
        self._control = control
        self._cache = cache
        self._runs = RunMemory()
        self.marks = NodeMarks(api, cache.doubts, self._runs.forget)
        loop.weigh = self.weigh
        self.verdicts: dict[str, int] = {}
        """How often each cause was found since the start."""

    def weigh(self, event: Event, why: Mapping[JobId, str]) -> None:
        """Take in the end of a run, before the engine does. Deleted pods are no sign against their nodes."""
        if not isinstance(event, JobEnded | Interrupted):
            return
        live = self._control.state.jobs.get(event.job_id)
        if live is None or live.stopping is not None or why.get(event.job_id, "").endswith(PODS_MISSING):
            return
        inventory = self._control.state.inventory.nodes
        slots = live.held or live.placement or ()
        nodes = tuple(dict.fromkeys(str(inventory[slot.node].node.id) for slot in slots))
        name = str(event.job_id)
        owner = str(live.job.tenant)  # `rota.dev/user` is what a pod says
        if isinstance(event, JobEnded) and event.end is not End.FAILED:
            if event.end is End.SUCCEEDED:
                self._runs.add(RunEnd(job=name, nodes=nodes, failed=False), owner)
            return
        found = diagnose(why.get(event.job_id, ""))
        cause = "unknown" if found is None else found.cause.name
        self.verdicts[cause] = self.verdicts.get(cause, 0) + 1
        blame = Blame.UNKNOWN if found is None else found.cause.blame
        self._runs.add(RunEnd(job=name, nodes=nodes, failed=True, blame=blame), owner)
        if blame is not Blame.JOB:  # a bug of a job is no further sign against its nodes
            for node, text in self._runs.failing(nodes, self._runs.odds()).items():
                self.marks.suspect(node, text)

    def of(self, node_id: NodeId) -> dict[str, str]:
        """Return a node's health for people: the state, and why."""
        bad = self._cache.unhealthy(str(node_id))
        if bad:
            return {"health": NodeHealthState.BAD.value, "health_why": bad}
        if self._cache.is_suspect(str(node_id)):
            return {"health": NodeHealthState.SUSPECT.value, "health_why": self.marks.why(str(node_id))}
        return {"health": NodeHealthState.HEALTHY.value, "health_why": ""}
