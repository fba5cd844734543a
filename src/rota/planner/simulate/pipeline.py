"""Simulates one training step of a pipeline: micro-batches through stages forward and back, then gradients.

The devices of a replicated stage split each micro-batch and work in step, so that they are one resource. Transfers
between stages contend for their medium, each direction on its own; gradients of replicated stages are added up after
the stage's last backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.core.errors import RotaError
from rota.planner.simulate.schedules import PipelineSchedule, Turn, device_turns
from rota.planner.simulate.tasks import SimTask, StepTimeline, simulate_tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineChunk:
    """A part of the model on one or more devices; times and bytes are of one micro-batch on one device."""

    devices: tuple[str, ...]
    forward_ms: float
    backward_ms: float
    output_bytes: float = 0.0
    resident_bytes: float = 0.0
    """Activations that a micro-batch leaves for its backward pass."""
    input_bytes: float = 0.0
    """What is kept instead where activations are computed again."""
    weight_bytes: float = 0.0
    """Weights, gradients and the optimizer's state."""
    transfer_ms: float = 0.0
    """Time to hand one micro-batch's output to the next chunk, or its gradient back."""
    medium: str | None = None
    """What transfers to the next chunk share with others of the same name."""
    all_reduce_ms: float = 0.0

    def __post_init__(self) -> None:
        if not self.devices:
            raise RotaError("a stage has no devices; give at least one")

    @property
    def resource(self) -> str:
        """The name under which the devices work together."""
        return self.devices[0] if len(self.devices) == 1 else f"{self.devices[0]} to {self.devices[-1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    """How a step is run."""

    micro_batches: int
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
    recompute: bool = False
    """Whether backward passes compute activations again instead of keeping them."""
    swap_bytes_per_ms: float | None = None
    """Bandwidth to the host where activations are swapped out between the passes; None: they stay."""
    core_speeds: tuple[float, ...] = ()
    """For stages that are processes on one machine: the speed of a pass where one, two, ... are active; as many
    entries as cores. Empty: devices do not share."""
    pinned_to: tuple[int, ...] = ()
    """The core of each stage's process, where processes are pinned to one; empty: they move freely."""

    def __post_init__(self) -> None:
        if self.micro_batches < 1:
            raise RotaError(f"{self.micro_batches} micro-batches; at least 1 is needed")
        if self.swap_bytes_per_ms is not None and self.swap_bytes_per_ms <= 0:
            raise RotaError("the bandwidth for swapping must be more than 0")
        if any(not 0 < speed <= 1 for speed in self.core_speeds):
            raise RotaError(f"speeds beside others are {self.core_speeds}; each must be above 0 and at most 1")
        if self.pinned_to and not self.core_speeds:
            raise RotaError("processes that are pinned to cores need `core_speeds`")


def simulate_pipeline(chunks: Sequence[PipelineChunk], settings: PipelineSettings) -> StepTimeline:
    """One step of all micro-batches; chunks that name the same devices are on them together."""
    groups = list(dict.fromkeys(chunk.devices for chunk in chunks))
    for number, chunk in enumerate(chunks):
        if chunk.devices != groups[number % len(groups)]:
            raise RotaError("chunks must go around the devices in turn: first to last, then first again")
    resident: dict[str, int] = {}
    for chunk in chunks:
        resident[chunk.resource] = resident.get(chunk.resource, 0) + int(chunk.weight_bytes)
    built = _StepTasks(chunks, settings)
    for turns in device_turns(settings.schedule, len(groups), len(chunks), settings.micro_batches):
        built.add_turns(turns)
    built.connect()
    core_of = None
    if settings.pinned_to:
        if len(settings.pinned_to) != len(groups):
            raise RotaError(f"{len(settings.pinned_to)} cores for {len(groups)} stages; name one for each")
        resources = dict.fromkeys(chunk.resource for chunk in chunks)
        core_of = dict(zip(resources, settings.pinned_to, strict=True))
    return simulate_tasks(built.tasks, resident, settings.core_speeds, core_of)


class _StepTasks:
    """Builds the tasks of a step: passes in the order of each device, transfers, swaps and all-reduces."""

    def __init__(self, chunks: Sequence[PipelineChunk], settings: PipelineSettings) -> None:
        self.tasks: list[SimTask] = []
        self._chunks = chunks
        self._settings = settings
        self._pass: dict[Turn, int] = {}

    def add_turns(self, turns: Sequence[Turn]) -> None:
        """Add the passes of one device, each after the one before."""
        previous: int | None = None
        for turn in turns:
            made = self._pass_task(turn)
            if previous is not None:
                made.after.append(previous)
            previous = self._add(made)
            self._pass[turn] = previous

    def connect(self) -> None:
        """Add what passes wait for: activations, gradients, and memory that was swapped out."""
        last = len(self._chunks) - 1
        for is_forward, chunk, batch in list(self._pass):
            here = self._pass[is_forward, chunk, batch]
            if is_forward and chunk < last:
                self._hand_on(here, (True, chunk + 1, batch), chunk, "")
            elif not is_forward:
                if chunk > 0:
                    self._hand_on(here, (False, chunk - 1, batch), chunk - 1, " back")
                self._keep(self._pass[True, chunk, batch], here, chunk, batch)
        self._all_reduce()

    def _add(self, task: SimTask) -> int:
        self.tasks.append(task)
        return len(self.tasks) - 1

    def _pass_task(self, turn: Turn) -> SimTask:
        is_forward, number, batch = turn
        chunk = self._chunks[number]
        time_ms = chunk.forward_ms if is_forward else chunk.backward_ms
        if not is_forward and self._settings.recompute:
            time_ms += chunk.forward_ms
        return SimTask(
            name=f"{'F' if is_forward else 'B'}{batch} of stage {number}",
            resource=chunk.resource,
            duration_ms=time_ms / len(chunk.devices),
            kind="forward" if is_forward else "backward",
            stage=number,
            rank=float(len(self.tasks)),
        )

    def _hand_on(self, source: int, turn: Turn, boundary: int, direction: str) -> None:
        chunk = self._chunks[boundary]
        target = self._pass[turn]
        if chunk.transfer_ms <= 0:
            self.tasks[target].after.append(source)
            return
        medium = chunk.medium or f"{chunk.resource} link"
        made = SimTask(
            name=f"{self.tasks[source].name} sent",
            resource=medium + direction,
            duration_ms=chunk.transfer_ms,
            after=[source],
            kind="transfer",
            stage=boundary,
            rank=self.tasks[target].rank,
        )
        self.tasks[target].after.append(self._add(made))

    def _keep(self, forward: int, backward: int, number: int, batch: int) -> None:
        """Account for activations between the passes of a micro-batch, swapped out in between if asked."""
        chunk = self._chunks[number]
        share = len(chunk.devices)
        kept = int((chunk.input_bytes if self._settings.recompute else chunk.resident_bytes) / share)
        whole = int(chunk.resident_bytes / share)
        device = chunk.resource
        first, second = self.tasks[forward], self.tasks[backward]
        first.at_start = ((device, whole),)
        second.at_end = ((device, -whole),)
        if self._settings.recompute:
            first.at_end = ((device, kept - whole),)
            second.at_start = ((device, whole - kept),)
        rate = self._settings.swap_bytes_per_ms
        if rate is None or not kept or forward + 1 == backward:
            second.after.append(forward)
            return
        out = SimTask(
            name=f"activations {batch} of stage {number} out",
            resource=f"{device} to host",
            duration_ms=kept / rate,
            after=[forward],
            kind="swap",
            stage=number,
            rank=first.rank,
            at_end=((device, -kept),),
        )
        left = self._add(out)
        # Fetch when the pass before the backward pass starts, so that the transfer hides behind it.
        ahead = [before for before in self.tasks[backward].after if self.tasks[before].resource == device]
        back = SimTask(
            name=f"activations {batch} of stage {number} in",
            resource=f"host to {device}",
            duration_ms=kept / rate,
            after=[left, *(after for before in ahead[:1] for after in self.tasks[before].after[:1])],
            kind="swap",
            stage=number,
            rank=second.rank,
            at_start=((device, kept),),
        )
        second.after.append(self._add(back))

    def _all_reduce(self) -> None:
        for number, chunk in enumerate(self._chunks):
            if chunk.all_reduce_ms > 0:
                last = max(
                    place for (is_forward, at, _), place in self._pass.items() if at == number and not is_forward
                )
                made = SimTask(
                    name=f"gradients of stage {number}",
                    resource=f"gradients {chunk.resource}",
                    duration_ms=chunk.all_reduce_ms,
                    after=[last],
                    kind="all-reduce",
                    stage=number,
                )
                self._add(made)
