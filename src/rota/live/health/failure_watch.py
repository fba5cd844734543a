"""What failed where: verdicts with their evidence, retries that follow them, and suspicions against nodes.

Stands between the driver and the loop. What a job prints makes its node suspect only together with failures of other
users' jobs there: an output is written by its user, and must not drain a node by itself.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rota.core.engine.driver import ExitDetail
from rota.core.messages.events import End, Event, Interrupted, JobEnded, JobRequeued, JobUpdated, Stopped
from rota.core.model.job import Job, JobId, NodeId
from rota.core.model.labels import NODE_NAME, Operator, Requirement
from rota.core.state.job_record import LiveJob
from rota.health.blame import FaultOdds, RunEnd
from rota.health.causes import Blame, Remedy, diagnose
from rota.health.node_state import HealthSign, Severity
from rota.health.run_memory import REMEMBERED_RUNS, RunMemory
from rota.live.health.node_counts import NodeCounts
from rota.live.health.node_watch import NodeWatch
from rota.live.loop.control import Control
from rota.live.loop.entry import LoopEntry
from rota.store import clock
from rota.store.run_folder import read_json, write_json

log = logging.getLogger("rota.live")
MOST_EXCLUDED = 3
"""Nodes that one job avoids at most."""
VERDICTS = "verdicts.json"
_ADVICE = {
    Remedy.NEVER: "it is not tried again: the same would happen",
    Remedy.MORE_MEMORY: "it needs more memory",
    Remedy.RETRY: "another attempt may succeed",
    Remedy.ELSEWHERE: "it is tried again on other nodes",
    Remedy.AFTER_REPAIR: "it is tried again on other nodes; this one has to be repaired",
}


class FailureWatch:
    """Weighs the ends of all runs."""

    def __init__(
        self,
        control: Control,
        nodes: NodeWatch,
        counts: NodeCounts,
        home: Path,
        *,
        soon: Callable[[Sequence[str]], None],
        lost: Callable[[Sequence[str]], None],
        large: int,
    ) -> None:
        """`soon` has nodes checked: those of failed jobs, and of all jobs of at least `large` devices.

        `lost` gets the nodes of runs that were lost with one of them. That is not taken from outputs of jobs.
        """
        self._soon = soon
        self._lost = lost
        self._large = large
        self._control = control
        self._nodes = nodes
        self._counts = counts
        self._home = home
        self.runs = RunMemory()
        self._counted: deque[str] = deque(maxlen=REMEMBERED_RUNS)
        self.xids_of: Callable[[JobId], Sequence[int]] = lambda job_id: ()
        """Returns the critical errors of a job's GPUs, as the driver of the GPUs reports them."""
        self.verdicts: dict[str, int] = {}
        """How often each cause was found since the start."""
        self._away: dict[JobId, tuple[str, ...]] = {}
        """Jobs that are being stopped to leave these nodes."""

    def answered(self, event: Event, detail: ExitDetail) -> None:
        """Take an answer of the driver, weigh it, and pass it on."""
        if isinstance(event, JobEnded | Interrupted):
            live = self._control.state.jobs.get(event.job_id)
            if live is not None and live.stopping is None:
                event, detail = self._weigh(live, event, detail)
        self._control.answered(event, detail)
        if isinstance(event, Stopped | JobEnded | Interrupted):
            self._leave(event)

    def note_stall(self, live: LiveJob, kind: str, text: str, nodes: tuple[str, ...]) -> None:
        """Keep a verdict about a job that still runs: it hangs, or ranks on these nodes straggle."""
        detail = ExitDetail(
            failure=kind,
            message="no rank makes progress" if kind == "hang" else "a rank is far slower than its gang",
            evidence=text,
            blame=Blame.UNKNOWN.value,
            remedy=Remedy.RETRY.value if kind == "hang" else Remedy.ELSEWHERE.value,
        )
        self.verdicts[kind] = self.verdicts.get(kind, 0) + 1
        self._keep(live, nodes, detail, self.runs.odds())
        self._soon(nodes)

    def move_away(self, job_id: JobId, nodes: tuple[str, ...]) -> None:
        """Stop a job with a checkpoint, to continue on other nodes where those can hold it."""
        self._away[job_id] = nodes
        self._soon(nodes)
        self._control.happened(LoopEntry([JobRequeued(job_id)]))

    def _leave(self, event: Stopped | JobEnded | Interrupted) -> None:
        nodes = self._away.pop(event.job_id, None)
        live = self._control.state.jobs.get(event.job_id)
        if nodes and live is not None and isinstance(event, Stopped):
            other = self._elsewhere(live.job, nodes)
            if other is not None:
                self._control.tell(JobUpdated(event.job_id, other))

    def _weigh(self, live: LiveJob, event: JobEnded | Interrupted, detail: ExitDetail) -> tuple[Event, ExitDetail]:
        nodes = self._nodes_of(live)
        job_id = str(live.job.id)
        if live.job.gpus >= self._large:
            self._soon(nodes)
        if isinstance(event, JobEnded) and event.end is not End.FAILED:
            if event.end is End.SUCCEEDED:
                self._remember(RunEnd(job=job_id, nodes=nodes, failed=False))
            return event, detail
        if not detail.failure:
            return event, detail
        if detail.failure == "lost":
            self._lost(nodes)
        detail = self._with_xids(live.job.id, detail)
        self._remember(RunEnd(job=job_id, nodes=nodes, failed=True, blame=_blame(detail.blame)))
        self.verdicts[detail.failure or ""] = self.verdicts.get(detail.failure or "", 0) + 1
        odds = self.runs.odds()
        self._keep(live, nodes, detail, odds)
        if _blame(detail.blame) is not Blame.JOB:  # a bug of a job is no further sign against its nodes
            self._suspect(nodes, odds)
        if isinstance(event, Interrupted) and event.job is None and detail.remedy in _AWAY:
            other = self._elsewhere(live.job, nodes)
            if other is not None:
                event = replace(event, job=other)
        return event, detail

    def _with_xids(self, job_id: JobId, detail: ExitDetail) -> ExitDetail:
        """Return the detail with the verdict of its GPUs' critical errors, where that tells more than the output."""
        found = diagnose("", xids=self.xids_of(job_id))
        if found is None or found.cause.blame is not Blame.NODE:
            return detail
        cause = found.cause
        return replace(
            detail,
            failure=cause.name,
            message=f"{cause.says} ({found.evidence})",
            evidence=found.evidence,
            blame=cause.blame.value,
            remedy=cause.remedy.value,
        )

    def _remember(self, run: RunEnd) -> None:
        if run.failed and run.blame is not Blame.JOB:
            self._soon(run.nodes)
        job = self._control.state.jobs[JobId(run.job)].job
        self.runs.add(run, self._control.kept[job.id].owner or str(job.tenant))
        kind = "single_node_failures" if len(run.nodes) == 1 else "multi_node_failures"
        for name in run.nodes:
            self._counts.add(name, "runs", *([kind] if run.failed and run.blame is not Blame.JOB else []))
        excluded_by_user = self._control.kept[JobId(run.job)].file.exclude_nodes
        for name in excluded_by_user if run.job not in self._counted else ():
            self._counts.add(name, "excluded_by_users")
        self._counted.append(run.job)

    def _nodes_of(self, live: LiveJob) -> tuple[str, ...]:
        inventory = self._control.state.inventory.nodes
        slots = live.held or live.placement or ()
        return tuple(dict.fromkeys(str(inventory[slot.node].node.id) for slot in slots))

    def _keep(self, live: LiveJob, nodes: tuple[str, ...], detail: ExitDetail, odds: FaultOdds) -> None:
        """Keep a verdict with its job."""
        job_id = live.job.id
        verdict = {
            "at_s": clock.now_s(),
            "attempt": self._control.kept[job_id].attempt,
            "cause": detail.failure,
            "message": detail.message,
            "evidence": detail.evidence,
            "blame": detail.blame or Blame.UNKNOWN.value,
            "remedy": detail.remedy or Remedy.RETRY.value,
            "nodes": list(nodes),
            "job_fault": round(odds.jobs.get(str(job_id), 0.0), 3),
            "node_fault": {name: round(odds.nodes.get(name, 0.0), 3) for name in nodes},
        }
        path = self._home / "runs" / job_id / VERDICTS
        try:
            known = (read_json(path) or {}).get("verdicts", [])
            write_json(path, {"verdicts": [*known[-19:], verdict]})
        except (OSError, ValueError, AttributeError):
            log.warning("a verdict could not be kept", extra={"job": job_id})

    def _suspect(self, nodes: tuple[str, ...], odds: FaultOdds) -> None:
        """Report nodes on which jobs of several owners failed, if they rather than the jobs are at fault."""
        for name, text in self.runs.failing(nodes, odds).items():
            sign = HealthSign(at_s=clock.now_s(), source="failures", severity=Severity.WARNING, text=text)
            self._nodes.take(NodeId(name), sign)

    def _elsewhere(self, job: Job, nodes: tuple[str, ...]) -> Job | None:
        """Return the job without the nodes it failed on; None where others can't hold it."""
        kept, never = excluded(job), self._control.kept[job.id].file.exclude_nodes
        earlier = [name for name in kept if name not in nodes and name not in never]
        away = (*never, *(*earlier, *nodes)[-MOST_EXCLUDED:])
        inventory = self._control.state.inventory.nodes
        left = sum(
            account.node.devices
            for account in inventory
            if str(account.node.id) not in away and not account.removed and not account.drained and account.up
        )
        if left < job.gpus or not any(str(account.node.id) not in away for account in inventory):
            return None
        return avoiding(job, away)


_AWAY = (Remedy.ELSEWHERE.value, Remedy.AFTER_REPAIR.value)


def excluded(job: Job) -> tuple[str, ...]:
    """Return the nodes that a job avoids."""
    for role in job.roles:
        for term in role.requires:
            for each in term:
                if each.key == NODE_NAME and each.operator == Operator.NOT_IN.value:
                    return each.values
    return ()


def avoiding(job: Job, nodes: tuple[str, ...]) -> Job:
    """Return the job with a requirement that keeps it off these nodes."""
    away = Requirement(NODE_NAME, Operator.NOT_IN.value, nodes)
    roles = []
    for role in job.roles:
        terms = role.requires or ((),)
        kept = tuple(tuple(each for each in term if each.key != NODE_NAME) for term in terms)
        roles.append(replace(role, requires=tuple((*term, away) for term in kept)))
    return replace(job, roles=tuple(roles))


def _blame(text: str) -> Blame:
    return Blame(text) if text else Blame.UNKNOWN


def verdicts_of(home: Path, job_id: str) -> list[dict[str, Any]]:
    """Return the verdicts that are kept with a job, oldest first, each with advice in words."""
    try:
        found = (read_json(home / "runs" / job_id / VERDICTS) or {}).get("verdicts", [])
    except (OSError, ValueError):
        return []
    return [each | {"advice": _advice(each)} for each in found if isinstance(each, dict)]


def _advice(verdict: dict[str, Any]) -> str:
    try:
        return _ADVICE[Remedy(verdict.get("remedy"))]
    except ValueError:
        return ""
