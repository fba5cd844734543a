"""Time and memory of a layer, and of both ends of the model, for each way of being parallel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.planner.parallel.layerwise.profile import EndsMemory, LayerwiseProfile, LinkTimes
from rota.planner.parallel.plans import Sharding

BACKWARD = 2.0  # a backward pass takes twice a forward pass
CONTEXT_MIB = 1024.0


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LayerWay:
    """How one layer is parallel: over tensor or sequence splits and replicas, what replicas divide, recomputation."""

    tensor: int
    sequence: int
    data: int
    shards_weights: bool
    recompute: bool

    @property
    def split(self) -> int:
        """Devices that work on one sequence."""
        return max(self.tensor, self.sequence)

    @property
    def replicas(self) -> int:
        """Devices that hold the same parameters: replicas, and those that split sequences only."""
        return self.data * self.sequence

    @property
    def sharding(self) -> Sharding:
        """What replicas divide: weights as well, or gradients and optimizer; a lone one divides nothing."""
        if self.replicas == 1:
            return Sharding.NONE
        return Sharding.WEIGHTS if self.shards_weights else Sharding.GRADIENTS


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkedBatch:
    """A batch that goes through `pipeline` stages in `chunks` parts."""

    batch: int
    chunks: int
    pipeline: int

    def local(self, way: LayerWay) -> int:
        """Sequences of a chunk on one replica."""
        return self.batch // self.chunks // way.data

    def in_flight(self, stage: int) -> int:
        """Chunks whose activations a stage keeps, one forward and one backward at a time."""
        return 1 if self.pipeline == 1 else self.pipeline - stage


@dataclass(frozen=True, slots=True, kw_only=True)
class WayTime:
    """Seconds of a chunk, with and without the reduction of gradients."""

    synced_s: float
    plain_s: float


def _reduce_ms_per_mib(links: LinkTimes, way: LayerWay) -> float:
    rates = links.near_reduce_ms_per_mib if way.tensor == 1 else links.far_reduce_ms_per_mib
    return rates[way.replicas]


def _overlapped_ms(compute_ms: float, message_mib: float, ms_per_mib: float, overlap: float) -> float:
    """Time of a computation and a reduction at once; each is slowed down while the other goes on."""
    slow_message_ms, slow_compute_ms = message_mib * ms_per_mib * overlap, compute_ms * overlap
    if slow_message_ms > slow_compute_ms:
        return slow_compute_ms + (slow_message_ms - slow_compute_ms) / overlap
    return slow_message_ms + compute_ms - slow_message_ms / overlap


def layer_time(profile: LayerwiseProfile, links: LinkTimes, batch: ChunkedBatch, way: LayerWay) -> WayTime:
    """Seconds of one chunk through one layer, forward and backward."""
    local = batch.local(way)
    forward_ms = profile.layer_forward_ms * local / way.split
    backward_ms = BACKWARD * forward_ms + (forward_ms if way.recompute else 0.0)
    rate = _reduce_ms_per_mib(links, way)
    # Parameters are counted in 32 bits and travel in 16.
    reduced_mib = (way.replicas - 1) / way.replicas * profile.parameter_mib / way.tensor
    fixed_ms = _split_ms(profile, links, local, way) + _send_ms(profile, links, batch, local)
    if way.sharding is Sharding.WEIGHTS:
        fixed_ms += reduced_mib / 2 * rate
    if way.replicas == 1:
        both_ms = forward_ms + backward_ms + fixed_ms
        return WayTime(synced_s=both_ms / 1e3, plain_s=both_ms / 1e3)
    synced_ms = forward_ms + _overlapped_ms(backward_ms, reduced_mib, rate, links.overlap) + fixed_ms
    return WayTime(synced_s=synced_ms / 1e3, plain_s=(forward_ms + backward_ms + fixed_ms) / 1e3)


def _split_ms(profile: LayerwiseProfile, links: LinkTimes, local: int, way: LayerWay) -> float:
    """Gathers of a tensor split (three each for attention and MLP), or exchanges of a sequence split (four)."""
    if way.split == 1:
        return 0.0
    size_mib = local * profile.message_mib
    repeats = 1.5 if way.recompute else 1.0
    if way.tensor > 1:
        return 6 * repeats * links.gather[way.tensor].of(size_mib)
    return 4 * repeats * links.exchange[way.sequence].of(size_mib)


def _send_ms(profile: LayerwiseProfile, links: LinkTimes, batch: ChunkedBatch, local: int) -> float:
    if batch.pipeline == 1:
        return 0.0
    return batch.pipeline * 2 * local * profile.message_mib * links.send_ms_per_mib[batch.pipeline]


def kept_share(sharding: Sharding, replicas: int, chunks: int) -> float:
    """The share of a layer's states that one replica keeps; 0.003 is for rounding up to whole blocks.

    Several chunks add up gradients in 32 bits, a quarter more than the 16 bytes per parameter.
    """
    part = 1 / replicas + 0.003
    grown = 1.0 if chunks == 1 else 5 / 4
    match sharding:
        case Sharding.WEIGHTS:
            return part * grown
        case Sharding.GRADIENTS:
            return (7 / 8 * part + 1 / 8) * grown
        case _:
            return 1.0


def layer_memory_mib(profile: LayerwiseProfile, batch: ChunkedBatch, way: LayerWay, stage: int) -> float:
    """Memory of one layer on a stage: states, and activations of the chunks in flight."""
    states = 4 * profile.parameter_mib / way.tensor * kept_share(way.sharding, way.replicas, batch.chunks)
    kept = profile.recomputed_mib / way.split if way.recompute else profile.activation_mib[way.split]
    return states + kept * batch.local(way) * batch.in_flight(stage)


def _stage_ends(profile: LayerwiseProfile, pipeline: int) -> list[EndsMemory | None]:
    if pipeline == 1:
        return [profile.whole]
    return [profile.first, *[None] * (pipeline - 2), profile.last]


def ends_time(profile: LayerwiseProfile, links: LinkTimes, batch: ChunkedBatch, way: LayerWay) -> list[WayTime]:
    """Seconds of a chunk in the embedding and the output layer, stage by stage."""
    local = batch.local(way)
    ends = _stage_ends(profile, batch.pipeline)
    share = 1.0 if batch.pipeline == 1 else 0.5
    forward_ms = share * profile.ends_forward_ms * local / way.split
    gathers = 2 * share if way.tensor > 1 else 0.0
    split_ms = gathers * links.gather[way.tensor].of(local * profile.message_mib) if gathers else 0.0
    rate = _reduce_ms_per_mib(links, way) * (way.replicas - 1) / way.replicas
    forward_share, backward_share = (0.5, 1.0) if way.sharding is Sharding.WEIGHTS else (0.0, 0.5)
    times = []
    for end in ends:
        if end is None:
            times.append(WayTime(synced_s=0.0, plain_s=0.0))
            continue
        message_ms = end.states_mib[way.tensor] / 8 * rate
        ahead_ms = _longer_ms(forward_ms, message_ms * forward_share, links.overlap) + split_ms
        synced_ms, plain_ms = (
            ahead_ms + _longer_ms(BACKWARD * forward_ms, message_ms * part, links.overlap)
            for part in (backward_share, backward_share - 0.5)
        )
        times.append(WayTime(synced_s=synced_ms / 1e3, plain_s=plain_ms / 1e3))
    return times


def _longer_ms(compute_ms: float, message_ms: float, overlap: float) -> float:
    """Time of a computation beside a message that is not slowed down by it."""
    slow_ms = compute_ms * overlap
    return message_ms + (slow_ms - message_ms) / overlap if slow_ms > message_ms else message_ms


def ends_memory_mib(profile: LayerwiseProfile, batch: ChunkedBatch, way: LayerWay) -> list[float]:
    """Memory of both ends and of a process, stage by stage."""
    share = kept_share(way.sharding, way.replicas, batch.chunks)
    found = []
    for stage, end in enumerate(_stage_ends(profile, batch.pipeline)):
        if end is None:
            found.append(CONTEXT_MIB)
            continue
        kept = end.activation_mib[way.split] * batch.local(way) * batch.in_flight(stage)
        found.append(end.states_mib[way.tensor] * share + kept + CONTEXT_MIB)
    return found


def pipeline_s(layers: Sequence[Sequence[WayTime]], ends: Sequence[WayTime], chunks: int) -> float:
    """Seconds of a step: all chunks through all stages, and the reduction of gradients that is left over.

    Warm-up and drain of the first stage hide behind the others' where those take longer.
    """
    plain = [sum(time.plain_s for time in stage) + end.plain_s for stage, end in zip(layers, ends, strict=True)]
    stages = len(plain)
    steady_s = sum(plain) + plain[-1] * (chunks - 1)
    ahead_s = min(stages - 1, chunks - 1) * plain[0]
    step_s = max(steady_s, max(ahead_s, sum(plain[1:])) + plain[0] * max(0, chunks + 1 - stages))
    left_s = [sum(time.synced_s for time in stage) - sum(plain[: place + 1]) for place, stage in enumerate(layers)]
    return step_s + max(0.0, *left_s)
