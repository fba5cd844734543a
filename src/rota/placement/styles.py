"""How to choose among free devices: what each placement is made of."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from rota.core.model.job import Job, Locality
from rota.core.model.placement import Placement
from rota.core.state.inventory import Inventory
from rota.perf.speed.network import Weighting
from rota.placement.apart import apart_by, find_apart
from rota.placement.link_neighbours import LinkNeighbours
from rota.placement.links import find_by_links
from rota.placement.network import find_near
from rota.placement.patterns import Pattern
from rota.placement.ranked import find_ranked
from rota.placement.search import find
from rota.placement.skew import is_skewed
from rota.plugins import Plugin

_ANYWHERE = Locality()


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How to choose among free devices: a pattern, and the locality of jobs that ask for none.

    With `by_skew`, both apply only to jobs whose model has skewed tensors; the others take the first free devices.
    """

    name: str
    pattern: Pattern
    locality_by_default: Locality = _ANYWHERE
    by_skew: bool = False
    then: tuple[tuple[float, Locality], ...] = ()
    """Localities that jobs without their own still require afterwards, each until so many seconds of waiting."""
    per_run: float = 0.0
    """Jobs without their own locality require the style's for this fraction of the time that they have run, too."""
    weighting: Weighting | None = None
    """How far it is from node to node, for a style that keeps traffic short; the pattern is then for other jobs."""
    ranking: Plugin | None = None
    """A user's order of nodes, in place of the pattern."""
    network: str = ""
    """The network file of a style that goes by links."""
    neighbours: LinkNeighbours | None = field(default=None, compare=False)
    """The other jobs on these links, for a style that goes by how jobs fit beside each other."""

    def locality(self, job: Job) -> Locality:
        """The job's own locality, or the style's."""
        if job.locality is not None:
            return job.locality
        return _ANYWHERE if self.by_skew and not is_skewed(job.model) else self.locality_by_default

    def ladder(self, job: Job, ran_s: float = 0.0) -> tuple[tuple[float, Locality], ...]:
        """The localities that a job which has run so long requires, each until it has waited so long."""
        locality = self.locality(job)
        if job.locality is None and job.labels and apart_by(job) is not None:
            return ()
        longer_s = self.per_run * ran_s if self.per_run and job.locality is None else 0.0
        first = ((locality.relax_after_s + longer_s, locality),) if locality.hard else ()
        return first if job.locality is not None else (*first, *self.then)

    def alike(self, job: Job) -> Hashable:
        """Jobs with the same roles and locality are placed in the same way."""
        if self.ranking is not None or self.network:
            return job.id
        if job.locality is None and not job.exclusive and job.elastic is None and not self.by_skew:
            return (job.roles, apart_by(job)) if job.labels else job.roles
        return (job.roles, self.locality(job), self._pattern(job), job.exclusive, job.elastic, apart_by(job))

    def keeps_refusal(self, job: Job) -> bool:
        """Whether a job that finds no devices finds some only after a node gets room for a task of it.

        Not so where roles are placed one after the other, or nodes chosen by other things than their room.
        """
        if self.ranking is not None or self.network or self.weighting is not None or job.elastic is not None:
            return False
        return len(job.roles) == 1 and (job.roles[0].count == 1 or self._pattern(job) is not Pattern.EVEN)

    def find(self, inventory: Inventory, job: Job, insist: Locality | None) -> Placement | None:
        """Devices for all tasks of a job, or None; one larger than a node gets proven nodes where they can hold it."""
        if inventory.unproven and is_larger_than_a_node(inventory, job):
            avoided = inventory.avoided
            inventory.avoided = avoided | inventory.unproven
            try:
                placement = self._find(inventory, job, insist)
            finally:
                inventory.avoided = avoided
            if placement is not None:
                return placement
        return self._find(inventory, job, insist)

    def _find(self, inventory: Inventory, job: Job, insist: Locality | None) -> Placement | None:
        apart = apart_by(job) if job.labels else None
        if apart is not None:
            return find_apart(inventory, job, apart, insist)
        if self.ranking is not None:
            return find_ranked(inventory, job, self.ranking, insist)
        if self.network:
            return find_by_links(inventory, job, self.network, insist, self.neighbours)
        if self.weighting is not None:
            return find_near(inventory, job, self.weighting, insist)
        return find(inventory, job, self._pattern(job), insist)

    def _pattern(self, job: Job) -> Pattern:
        return Pattern.FIRST if self.by_skew and not is_skewed(job.model) else self.pattern


def is_larger_than_a_node(inventory: Inventory, job: Job) -> bool:
    """Whether no single node could hold a job, so that it depends on several."""
    return job.gpus > max((len(pool.by_free) - 1 for pool in inventory.pools), default=0)
