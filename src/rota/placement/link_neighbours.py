"""How well a job fits on links beside the jobs that already send there: Cassini's score of a placement.

The score of a link is 1 less the mean excess of its rate, with the rotations that turns allow, or with all jobs sending
at the same time where none keeps turns. An excess is sent later, so that an iteration takes 2 - score times as long.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from rota.core.model.job import Job, JobId
from rota.core.model.placement import Placement, is_suspended_claim
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.network.cassini import JobCircle, best_shifts, score_of
from rota.network.load import NetworkLoad
from rota.network.model import LinkMechanism, NetworkModel
from rota.network.phases import PhasedJob
from rota.network.turns import phased_job

MOST_ROTATED = 8
"""Jobs on one link up to which rotations are searched; more of them are taken to send at the same time."""


class LinkNeighbours:
    """The jobs that hold devices, by the links on which they send."""

    def __init__(self) -> None:
        self._held: dict[JobId, tuple[Job, Placement]] = {}
        self._changed: dict[JobId, None] = {}
        """Jobs whose claims changed since the links were last brought up to date."""
        self._senders: dict[JobId, PhasedJob] = {}
        self._by_link: dict[int, dict[JobId, None]] = {}
        self._load: NetworkLoad | None = None
        self._nodes = 0

    def adopt(self, state: State) -> None:
        """Take in the claims of a state."""
        self._held, self._changed, self._senders, self._by_link = {}, {}, {}, {}
        for live in state.jobs.values():
            if live.placement is not None:
                self.moved(live, None, live.placement, undo=False)

    def moved(self, live: LiveJob, before: Placement | None, after: Placement | None, *, undo: bool) -> None:
        """Take in a claim that changed; a suspended job sends nothing."""
        name = live.job.id
        if after and not (live.job.gpu_milli and is_suspended_claim(after)):
            self._held[name] = (live.job, after)
        else:
            self._held.pop(name, None)
        self._changed[name] = None

    def refresh(self, model: NetworkModel, inventory: Inventory) -> None:
        """Bring the links up to date with the claims."""
        if self._load is None or self._load.model is not model or self._nodes != len(inventory.nodes):
            self._load = NetworkLoad(model, [account.node for account in inventory.nodes])
            self._nodes = len(inventory.nodes)
            self._senders, self._by_link, self._changed = {}, {}, dict.fromkeys(self._held)
        for name in self._changed:
            self._leave(name)
            job, placement = self._held.get(name, (None, ()))
            traffic = None if job is None else self._load.traffic(job, placement)
            if traffic is None or not traffic.loads:
                continue
            sender = phased_job(traffic)
            if sender.bytes and sender.alone_s > 0:
                self._senders[name] = sender
                for link in sender.loads:
                    self._by_link.setdefault(link, {})[name] = None
        self._changed = {}

    def _leave(self, name: JobId) -> None:
        sender = self._senders.pop(name, None)
        for link in () if sender is None else sender.loads:
            names = self._by_link[link]
            del names[name]
            if not names:
                del self._by_link[link]

    def wanted(self, model: NetworkModel) -> dict[int, float]:
        """How much of the links at each switch jobs use on average if they do not wait, relative to their rates."""
        topology = model.topology
        found: dict[int, float] = {}
        for link, names in self._by_link.items():
            use = sum(_mean_bytes_per_s(self._senders[name], link) for name in names)
            share = use / float(topology.capacity[link])
            for end in (topology.tail[link], topology.head[link]):
                found[end] = found.get(end, 0.0) + share
        return found

    def score(self, job: PhasedJob, name: JobId, model: NetworkModel, known: dict[Hashable, float]) -> float:
        """The lowest score of the links that a job would fill together with others: the slowest link sets its pace.

        `known` keeps scores of links for other candidates of the same job.
        """
        worst = 1.0
        for link, load in job.loads.items():
            others = [other for other in self._by_link.get(link, ()) if other != name]
            if not others:
                continue
            key = (link, load * job.top_level, job.alone_comm_s, job.alone_s)
            if key not in known:
                known[key] = self._score_of_link(link, job, others, model)
            worst = min(worst, known[key])
        return worst

    def _score_of_link(self, link: int, job: PhasedJob, others: Sequence[JobId], model: NetworkModel) -> float:
        capacity = float(model.topology.capacity[link])
        at_once = [_circle(sender, link) for sender in (job, *(self._senders[name] for name in others))]
        if sum(circle.demand for circle in at_once) <= capacity * (1 + 1e-9):
            return 1.0
        if model.mechanism is LinkMechanism.CASSINI and len(at_once) <= MOST_ROTATED:
            return best_shifts(at_once, capacity).score
        return score_of(at_once, capacity)


def _mean_bytes_per_s(sender: PhasedJob, link: int) -> float:
    return sender.loads[link] * sender.bytes / sender.alone_s


def _circle(sender: PhasedJob, link: int) -> JobCircle:
    """The iteration of a job as a link sees it, from the moment at which it begins to send."""
    return JobCircle(
        period_s=sender.alone_s,
        start_s=0.0,
        length_s=min(sender.alone_comm_s, sender.alone_s),
        demand=sender.loads[link] * sender.top_level,
    )
