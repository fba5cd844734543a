"""The order in which a pipeline's devices take forward and backward passes of micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from rota.core.errors import RotaError

Turn = tuple[bool, int, int]
"""Whether it is a forward pass, the chunk of the model, and the micro-batch."""


class PipelineSchedule(Enum):
    """Published orders of passes."""

    GPIPE = "gpipe"
    """All forward passes, then all backward passes (Huang et al., NeurIPS 2019)."""
    ONE_F_ONE_B = "1f1b"
    """After a warm-up, forward and backward in turns (Narayanan et al., SOSP 2019; with a flush at the end)."""
    INTERLEAVED = "interleaved"
    """1F1B with several chunks of the model on each device (Narayanan et al., SC 2021)."""
    DAPPLE = "dapple"
    """Early backward with twice the warm-up, which hides transfers (Fan et al., PPoPP 2021, policy B)."""


def device_turns(schedule: PipelineSchedule, devices: int, chunks: int, micro_batches: int) -> list[list[Turn]]:
    """The turns of each device; chunk c of the model is on device c modulo the number of devices."""
    if chunks % devices:
        raise RotaError(f"{chunks} chunks on {devices} devices; the number of chunks must be a multiple")
    per_device = chunks // devices
    if schedule is PipelineSchedule.INTERLEAVED:
        if micro_batches % devices:
            raise RotaError(
                f"interleaved takes micro-batches in groups of {devices}; {micro_batches} is no multiple of it"
            )
        return [_interleaved(device, devices, per_device, micro_batches) for device in range(devices)]
    if per_device > 1:
        raise RotaError(f"{schedule.value} takes one chunk on each device; take interleaved for {per_device}")
    if schedule is PipelineSchedule.GPIPE:
        return [_warm(device, micro_batches, micro_batches) for device in range(devices)]
    reach = 1 if schedule is PipelineSchedule.ONE_F_ONE_B else 2
    return [_warm(device, micro_batches, reach * (devices - device) - reach + 1) for device in range(devices)]


def _warm(device: int, micro_batches: int, warm_up: int) -> list[Turn]:
    """So many forward passes first, then backward and forward in turns, then what is left of backward."""
    ahead = min(max(warm_up, 1), micro_batches)
    turns: list[Turn] = [(True, device, batch) for batch in range(ahead)]
    for batch in range(micro_batches):
        turns.append((False, device, batch))
        if batch + ahead < micro_batches:
            turns.append((True, device, batch + ahead))
    return turns


def _interleaved(device: int, devices: int, per_device: int, micro_batches: int) -> list[Turn]:
    total = micro_batches * per_device
    forward = [_chunk_turn(number, device, devices, per_device, is_forward=True) for number in range(total)]
    backward = [_chunk_turn(number, device, devices, per_device, is_forward=False) for number in range(total)]
    ahead = min(2 * (devices - device - 1) + (per_device - 1) * devices + 1, total)
    turns = forward[:ahead]
    for number in range(total):
        turns.append(backward[number])
        if number + ahead < total:
            turns.append(forward[number + ahead])
    return turns


def _chunk_turn(number: int, device: int, devices: int, per_device: int, *, is_forward: bool) -> Turn:
    """The pass of a device at a position: chunks change after each group of as many micro-batches as devices."""
    group, within = divmod(number, devices * per_device)
    layer, offset = divmod(within, devices)
    chunk = layer if is_forward else per_device - 1 - layer
    return is_forward, chunk * devices + device, group * devices + offset


def warm_up_of(turns: Sequence[Turn]) -> int:
    """Forward passes before the first backward pass: the most micro-batches in flight."""
    return next((place for place, turn in enumerate(turns) if not turn[0]), len(turns))
