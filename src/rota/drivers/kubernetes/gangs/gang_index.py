"""Index of pods by gang, and the gangs to reconcile because something about them changed."""

from __future__ import annotations

from collections.abc import Iterable

from rota.core.model.job import JobId
from rota.drivers.kubernetes.gangs.gang import Gang, GangKey, GangSource, Stage, key_of, stated_size
from rota.drivers.kubernetes.gangs.occupancy import Occupancy
from rota.drivers.kubernetes.gangs.pod_places import PodPlaces
from rota.drivers.kubernetes.objects.pods import Pod
from rota.store import clock


class GangIndex:
    """Gangs by key and by job."""

    def __init__(self, occupancy: Occupancy, places: PodPlaces) -> None:
        self._occupancy = occupancy
        self._places = places
        self._gangs: dict[GangKey, Gang] = {}
        self._gang_by_pod: dict[str, Gang] = {}
        self._others: set[str] = set()
        self._touched: dict[Gang, None] = {}
        self._changed: dict[Gang, None] = {}
        self.by_job: dict[JobId, Gang] = {}
        """Gangs of jobs that have not ended in the engine."""

    @property
    def gangs(self) -> list[Gang]:
        """All gangs."""
        return list(self._gangs.values())

    @property
    def pods(self) -> dict[str, Pod]:
        """All pods of gangs, by uid."""
        return {uid: pod for gang in self._gangs.values() for uid, pod in gang.members.items()}

    def pod(self, uid: str) -> Pod | None:
        """A pod of a gang; None if there is none with this uid."""
        gang = self._gang_by_pod.get(uid)
        return None if gang is None else gang.members.get(uid)

    def is_other(self, uid: str) -> bool:
        """Whether a pod is known as one that belongs to no gang."""
        return uid in self._others

    def see(self, pod: Pod) -> None:
        """Record the present form of a pod."""
        if not pod.is_ours or (pod.gated and pod.node is None):
            self._others.add(pod.uid)
            self._occupancy.count(pod)
            self._places.see(pod)
            return
        gang = self._gang_by_pod.get(pod.uid) or self._join(pod)
        before = gang.members.get(pod.uid)
        if before is not None and before.wants.needs != pod.wants.needs:
            self._places.world.version += 1
        if before is not None and before.node is not None and pod.node is None:
            pod.node = before.node  # a stale view of a pod that has been bound since
        gang.members[pod.uid] = pod
        if pod.holds or pod.phase.is_over or pod.uid not in gang.assigned:
            self._places.see(pod)
        slot = gang.assigned.get(pod.uid)
        if slot is not None and gang.job is not None and slot.task.role < len(gang.job.roles):
            role = gang.job.roles[slot.task.role]
            self._occupancy.count_growth(pod, role.cpu_milli, role.memory_bytes)
        elif not gang.is_counted(pod.uid):
            self._occupancy.count(pod)
        self.touch(gang)

    def gone(self, uid: str) -> None:
        """Remove a deleted pod."""
        self._occupancy.drop(uid)
        self._places.drop(uid)
        self._others.discard(uid)
        gang = self._gang_by_pod.pop(uid, None)
        if gang is not None:
            gang.members.pop(uid, None)
            gang.lost_pods = True
            if not gang.members and gang.stage is Stage.GATHERING:
                gang.size = None  # the next pod states the size
            gang.touched_s = clock.now_s()
            self.touch(gang)

    def replace(self, pods: Iterable[Pod]) -> None:
        """Replace the index by a full list of pods."""
        now = {pod.uid: pod for pod in pods}
        for uid in [uid for uid in (*self._gang_by_pod, *self._others) if uid not in now]:
            self.gone(uid)
        for pod in now.values():
            self.see(pod)

    def _join(self, pod: Pod) -> Gang:
        key = key_of(pod)
        gang = self._gangs.get(key)
        if gang is None or gang.stage is Stage.OVER:
            if gang is not None:
                self.retire(gang)
            gang = self._gangs[key] = Gang(key)
        gang.touched_s = clock.now_s()
        gang.owner = gang.owner or pod.owner
        if gang.size is None:
            gang.size = stated_size(pod, key)
        self._gang_by_pod[pod.uid] = gang
        return gang

    def part(self, gang: Gang, pod: Pod) -> None:
        """Split a pod off its gang into a job of its own."""
        del gang.members[pod.uid]
        key = GangKey(pod.namespace, GangSource.POD, pod.uid)
        alone = Gang(key, owner=pod.owner, members={pod.uid: pod}, size=1, touched_s=clock.now_s())
        self._gangs[key] = self._gang_by_pod[pod.uid] = alone
        self.touch(alone)

    def late_of(self, gang: Gang) -> list[Gang]:
        """Gangs of surplus pods of the same controller, each a job of its own."""
        if gang.owner is None:
            return []
        return [other for other in self._gangs.values() if other is not gang and other.owner == gang.owner]

    def does_without(self, gang: Gang, wanted: int | None) -> bool:
        """Whether a gang with missing pods has as many as its controller wants now."""
        left = len(gang.slots) - len(gang.missing)
        return gang.started and left > 0 and wanted is not None and wanted <= left + len(self.late_of(gang))

    def gang_of(self, uid: str) -> Gang | None:
        """The gang of a pod."""
        return self._gang_by_pod.get(uid)

    def touch(self, gang: Gang) -> None:
        """Mark a gang for reconciliation and for the reporter."""
        self._touched[gang] = None
        self._changed[gang] = None

    def touch_all(self) -> None:
        """Mark every gang for reconciliation."""
        self._touched.update(dict.fromkeys(self._gangs.values()))
        self._changed.update(dict.fromkeys(self._gangs.values()))

    def take_touched(self) -> Iterable[Gang]:
        """Yield the gangs to reconcile until none is left."""
        while self._touched:
            touched, self._touched = self._touched, {}
            yield from touched

    def take_changed(self) -> dict[Gang, None]:
        """Take the gangs that changed since the last call."""
        changed, self._changed = self._changed, {}
        return changed

    def retire(self, gang: Gang) -> None:
        """Forget a finished gang; its remaining pods count as occupancy."""
        if self._gangs.get(gang.key) is gang and not gang.members:
            del self._gangs[gang.key]
        for pod in gang.members.values():
            self._occupancy.count(pod)
