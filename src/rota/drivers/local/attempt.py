"""One attempt to run a job: its tasks, from the start barrier to the verdict."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from rota.core.messages.decisions import Cause
from rota.core.model.cluster import Node
from rota.core.model.job import WHOLE, Job, JobId
from rota.core.model.placement import Placement
from rota.core.model.ranks import task_ranks
from rota.drivers.local.confinement.accounts import UnixAccount
from rota.drivers.local.failure import Failure, FailureClass, classify
from rota.drivers.local.launch_order import LaunchOrder
from rota.drivers.local.link_terms import terms_of
from rota.drivers.local.task import TaskHandle, TaskPhase, task_token
from rota.files.job import Launch
from rota.health.causes import CauseOfFailure
from rota.network.link_guide import LinkGuide, LinkTerms, in_order
from rota.store.run_folder import Json, attempt_folder, tail

RANKS_LOOKED_AT = 64
"""Failed tasks of a gang whose outputs are searched for the cause."""
_AT_BARRIER = frozenset({TaskPhase.READY, TaskPhase.LAUNCHING, TaskPhase.RUNNING})


class Verdict(Enum):
    """How an attempt came to its end."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"
    NEVER_STARTED = "never-started"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptOutcome:
    """The verdict, the exit code to show, and the reason."""

    verdict: Verdict
    exit_code: int | None = None
    failure: Failure | None = None
    message: str = ""


class Attempt:
    """The tasks of one launch order, and the orders given for them."""

    def __init__(self, job: Job, launch: Launch, number: int, tasks: list[TaskHandle], work_s: float) -> None:
        self.job = job
        self.placement: Placement = ()
        self.links: LinkTerms | None = None
        """What its tasks are told about the network; None without one."""
        self.launch = launch
        self.number = number
        self.tasks = tasks
        self.work_s = work_s
        """Work that was saved when it started."""
        self.causes: Sequence[CauseOfFailure] | None = None
        """The table by which its output tells why it failed; None: Rota's own."""
        self.crowded = False
        """Whether jobs that were suspended held memory of its GPUs when it ended."""
        self.account: UnixAccount | None = None
        """Under which its tasks run; None: as the manager."""
        self.confine: Json | None = None
        """What its tasks give up before they start, if they are confined."""
        self.scratch: Json | None = None
        """The folders that its supervisors watch, and how much they may hold."""
        self.announced = False
        """Whether its start was reported to the engine."""
        self.ordered: Cause | None = None
        """Why the engine ordered it to stop, if it did."""
        self.left = False
        """Whether it has left its devices at a rung of its sweep without an order of the engine."""
        self.given_up = ""
        """Why the driver stops it by itself, if it does."""
        self.is_hopeless = False
        """Whether what it was given up for would be the same at another start."""
        self.ending = False
        self.concludes = False
        """Whether all of its tasks have ended and what is left of them is being removed."""
        self.resizes = False
        """Whether it continues a job that ran with another number of tasks before."""
        self.moves = False
        """Whether it continues a job that ran on other devices before."""
        self.rests = False
        """Whether its tasks are to be suspended."""
        self.turned = False
        """Whether a suspension or resumption is still to be answered."""
        self.swap: Json | None = None
        """What its tasks are told about their GPU memory with the order to suspend or resume."""
        self.restore: Json | None = None
        """What its supervisor is told if its processes are on disk."""
        self.saves = False
        """Whether it was reported that it only saves its result."""
        self.successor: LaunchOrder | None = None
        """What to start when it has stopped, if it is being resized."""

    @property
    def rate(self) -> float:
        """Its speed relative to the job at full size: assumed proportional to its number of tasks."""
        return len(self.tasks) / self.job.tasks

    @property
    def cancelled(self) -> Cause | None:
        """The order to cancel it that its folder holds, even if the manager could not store that."""
        return Cause.CANCELLED if any(task.was_cancelled for task in self.tasks) else None

    @property
    def is_gang(self) -> bool:
        """Whether tasks have to wait for each other."""
        return len(self.tasks) > 1

    @property
    def all_ready(self) -> bool:
        """Whether every task waits at the barrier, or has passed it."""
        return all(task.phase in _AT_BARRIER or task.ran for task in self.tasks)

    @property
    def all_running(self) -> bool:
        """Whether every task was started."""
        return all(
            task.phase is TaskPhase.RUNNING or (task.phase is TaskPhase.ENDED and task.ran) for task in self.tasks
        )

    @property
    def has_turned(self) -> bool:
        """Whether every task has been suspended, or resumed, as ordered."""
        return self.all_running and all(
            task.phase is TaskPhase.ENDED or (task.rests is self.rests and task.has_obeyed) for task in self.tasks
        )

    @property
    def all_save(self) -> bool:
        """Whether no task needs its devices any more."""
        return all(task.saves or task.phase is TaskPhase.ENDED for task in self.tasks)

    @property
    def all_ended(self) -> bool:
        """Whether nothing of the attempt is left."""
        return all(task.phase is TaskPhase.ENDED for task in self.tasks)

    def open_barrier(self) -> None:
        """Let its tasks start together; a repeated call changes nothing."""
        go = self.tasks[0].folder.parent / "go"
        if not go.exists():
            go.touch()
            for task in self.tasks:
                task.nudge()

    def note_sharing(self) -> None:
        """Note that other jobs share its devices, so that their utilisation is not only its own."""
        if any(slot.milli != WHOLE for slot in self.placement):
            for task in self.tasks:
                task.mark_shared()

    def is_decided(self) -> bool:
        """Return whether the remaining tasks can be stopped: enough of a role failed or succeeded, or one was lost."""
        for index, role in enumerate(self.launch.roles):
            mine = [task for task in self.tasks if task.slot.role == index and task.phase is TaskPhase.ENDED]
            succeeded = sum(task.succeeded for task in mine)
            if len(mine) - succeeded >= role.min_failed or any(task.lost or not task.ran for task in mine):
                return True
            if role.min_succeeded is not None and succeeded >= role.min_succeeded:
                return True
        return False

    def conclude(self) -> AttemptOutcome:
        """Return how it ended, to be called once; for the engine, one that has left at a rung was stopped."""
        self.concludes = True
        if self.ordered is None and any(task.left_at_rung for task in self.tasks):
            self.ordered, self.left = Cause.PREEMPTED, True
        return self.outcome()

    def outcome(self) -> AttemptOutcome:
        """Return how it ended, once no task is left."""
        if not any(task.ran for task in self.tasks):
            return AttemptOutcome(verdict=Verdict.NEVER_STARTED, message=self.given_up or "its tasks were not started")
        if self.ordered is not None and not self._finished_all_the_same:
            return AttemptOutcome(verdict=Verdict.STOPPED, message=self.ordered.value)
        failed = self._failed_role()
        if failed is None:
            return AttemptOutcome(verdict=Verdict.SUCCEEDED, exit_code=0)
        lost = next((task for task in self.tasks if task.lost or not task.ran), None)
        if lost is not None:
            return AttemptOutcome(
                verdict=Verdict.LOST,
                exit_code=lost.exit_code,
                message=f"task {lost.slot.rank} was lost: its supervisor died",
            )
        if self._only_stopped:
            return AttemptOutcome(
                verdict=Verdict.LOST,
                exit_code=failed.exit_code,
                message=f"task {failed.slot.rank} was stopped by a manager that ended before it could report why",
            )
        failed, failure = self._root_cause(failed)
        where = f"task {failed.slot.rank}: " if self.is_gang else ""
        kind = "" if failure.kind is FailureClass.UNKNOWN else f" ({failure.kind.value})"
        return AttemptOutcome(
            verdict=Verdict.FAILED,
            exit_code=failed.exit_code,
            failure=failure,
            message=f"{where}{failure.cause}{kind}",
        )

    def _root_cause(self, failed: TaskHandle) -> tuple[TaskHandle, Failure]:
        """Return the failed task whose signs tell most, and its failure: in a gang most errors only follow from one."""
        found = [(failed, _failure_of(failed, self))]
        others = [
            task
            for task in self.tasks
            if task is not failed and task.ran and not task.succeeded and not task.state.get("stopped")
        ]
        found += [(task, _failure_of(task, self)) for task in others[:RANKS_LOOKED_AT] if task.phase is TaskPhase.ENDED]
        return min(found, key=lambda each: each[1].tier)

    @property
    def _finished_all_the_same(self) -> bool:
        """Whether it succeeded before the stop reached it. A job that saves its progress ends well when it
        is stopped, too: such an end counts as a stop, unless the order had not reached it, or its work was done."""
        if not all(task.succeeded for task in self.tasks):
            return False
        stopped = [task for task in self.tasks if task.was_stopped]
        if self.ordered in (Cause.CANCELLED, Cause.TIME_LIMIT):
            return not stopped
        return not self.launch.checkpoint or all(task.state.get("done") for task in stopped)

    @property
    def _only_stopped(self) -> bool:
        """Whether no task failed by itself: an earlier manager gave the attempt up and left no reason."""
        return all(task.succeeded or task.state.get("stopped") for task in self.tasks)

    def _failed_role(self) -> TaskHandle | None:
        """Return the task whose failure made the job fail; None if it succeeded."""
        for index, role in enumerate(self.launch.roles):
            mine = [task for task in self.tasks if task.slot.role == index]
            if role.min_succeeded is not None and sum(task.succeeded for task in mine) >= role.min_succeeded:
                return None
        for index, role in enumerate(self.launch.roles):
            mine = [task for task in self.tasks if task.slot.role == index]
            bad = [task for task in mine if not task.succeeded]
            if len(bad) >= role.min_failed:
                # The first to fail is the cause; what ended after it was ended because of it.
                return min(bad, key=lambda task: float(task.state.get("ended_s") or 0.0))
        return None


def attempt_of(
    order: LaunchOrder,
    nodes: Sequence[Node],
    home: Path,
    mark: str,
    guide: LinkGuide | None = None,
    alive: Container[JobId] = (),
) -> Attempt:
    """Return the attempt of an order; if it has begun, as its folders say."""
    folder = attempt_folder(home, order.job.id, order.attempt)
    terms = terms_of(guide, order, nodes, folder, alive)
    exists, number = folder.exists(), true_number(folder, order.attempt)
    tasks = []
    for slot in task_ranks(in_order(order.placement, terms.order if terms else ()), nodes):
        own = folder / str(slot.rank)
        token = task_token(mark, own if exists else None, order.job.id, number, slot.rank)
        tasks.append(TaskHandle(slot, own, token))
        if exists:
            tasks[-1].refresh()
    attempt = Attempt(order.job, order.launch, number, tasks, order.work_s)
    attempt.placement, attempt.links = order.placement, terms
    attempt.resizes, attempt.moves = order.resizes, order.moves
    return attempt


def true_number(folder: Path, number: int) -> int:
    """Return the number under which an attempt's processes began: a suspended job goes on in its former folder."""
    return int(folder.resolve().name) if folder.is_symlink() else number


def _failure_of(task: TaskHandle, attempt: Attempt) -> Failure:
    """Return why a task failed."""
    return classify(
        task.state.get("exit_code"),
        task.state.get("signal"),
        tail(task.folder),
        memory_limit=task.state.get("cause") == "memory",
        asked_memory=bool(attempt.job.roles[task.slot.role].memory_bytes),
        scratch_limit=task.state.get("cause") == "scratch",
        idle=str(task.state.get("idle") or ""),
        gpu_memory_limit=task.state.get("excess", ""),
        not_suspended=str(task.state.get("swap_failed") or ""),
        crowded=attempt.crowded,
        not_contained=task.state.get("cause") == "container",
        causes=attempt.causes,
    )
