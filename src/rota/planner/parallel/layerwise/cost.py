"""Time and memory of a layer, and of the embedding with the output layer, under each strategy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.planner.parallel.layerwise.profile import EmbeddingMemory, LayerwiseProfile, LinkTimes
from rota.planner.parallel.plans import Sharding

BACKWARD = 2.0  # a backward pass takes twice a forward pass
CONTEXT_MIB = 1024.0


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LayerStrategy:
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

    def local(self, strategy: LayerStrategy) -> int:
        """Sequences of a chunk on one replica."""
        return self.batch // self.chunks // strategy.data

    def in_flight(self, stage: int) -> int:
        """Chunks whose activations a stage keeps, one forward and one backward at a time."""
        return 1 if self.pipeline == 1 else self.pipeline - stage


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyTime:
    """Seconds of a chunk, with and without the reduction of gradients."""

    synced_s: float
    plain_s: float


def _reduce_ms_per_mib(links: LinkTimes, strategy: LayerStrategy) -> float:
    rates = links.near_reduce_ms_per_mib if strategy.tensor == 1 else links.far_reduce_ms_per_mib
    return rates[strategy.replicas]


def _overlapped_ms(compute_ms: float, message_mib: float, ms_per_mib: float, overlap: float) -> float:
    """Time of a computation and a reduction at once; each is slowed down while the other goes on."""
    slow_message_ms, slow_compute_ms = message_mib * ms_per_mib * overlap, compute_ms * overlap
    if slow_message_ms > slow_compute_ms:
        return slow_compute_ms + (slow_message_ms - slow_compute_ms) / overlap
    return slow_message_ms + compute_ms - slow_message_ms / overlap


def layer_time(
    profile: LayerwiseProfile, links: LinkTimes, batch: ChunkedBatch, strategy: LayerStrategy
) -> StrategyTime:
    """Seconds of one chunk through one layer, forward and backward."""
    local = batch.local(strategy)
    forward_ms = profile.layer_forward_ms * local / strategy.split
    backward_ms = BACKWARD * forward_ms + (forward_ms if strategy.recompute else 0.0)
    rate = _reduce_ms_per_mib(links, strategy)
    # Parameters are counted in 32 bits and travel in 16.
    reduced_mib = (strategy.replicas - 1) / strategy.replicas * profile.parameter_mib / strategy.tensor
    fixed_ms = _split_ms(profile, links, local, strategy) + _send_ms(profile, links, batch, local)
    if strategy.sharding is Sharding.WEIGHTS:
        fixed_ms += reduced_mib / 2 * rate
    if strategy.replicas == 1:
        both_ms = forward_ms + backward_ms + fixed_ms
        return StrategyTime(synced_s=both_ms / 1e3, plain_s=both_ms / 1e3)
    synced_ms = forward_ms + _overlapped_ms(backward_ms, reduced_mib, rate, links.overlap) + fixed_ms
    return StrategyTime(synced_s=synced_ms / 1e3, plain_s=(forward_ms + backward_ms + fixed_ms) / 1e3)


def _split_ms(profile: LayerwiseProfile, links: LinkTimes, local: int, strategy: LayerStrategy) -> float:
    """Gathers of a tensor split (three each for attention and MLP), or exchanges of a sequence split (four)."""
    if strategy.split == 1:
        return 0.0
    size_mib = local * profile.message_mib
    repeats = 1.5 if strategy.recompute else 1.0
    if strategy.tensor > 1:
        return 6 * repeats * links.gather[strategy.tensor].of(size_mib)
    return 4 * repeats * links.exchange[strategy.sequence].of(size_mib)


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


def layer_memory_mib(profile: LayerwiseProfile, batch: ChunkedBatch, strategy: LayerStrategy, stage: int) -> float:
    """Memory of one layer on a stage: states, and activations of the chunks in flight."""
    states = (
        4 * profile.parameter_mib / strategy.tensor * kept_share(strategy.sharding, strategy.replicas, batch.chunks)
    )
    kept = profile.recomputed_mib / strategy.split if strategy.recompute else profile.activation_mib[strategy.split]
    return states + kept * batch.local(strategy) * batch.in_flight(stage)


def _stage_embeddings(profile: LayerwiseProfile, pipeline: int) -> list[EmbeddingMemory | None]:
    if pipeline == 1:
        return [profile.whole]
    return [profile.first, *[None] * (pipeline - 2), profile.last]


def embedding_time(
    profile: LayerwiseProfile, links: LinkTimes, batch: ChunkedBatch, strategy: LayerStrategy
) -> list[StrategyTime]:
    """Seconds of a chunk in the embedding and the output layer, stage by stage."""
    local = batch.local(strategy)
    embedding = _stage_embeddings(profile, batch.pipeline)
    share = 1.0 if batch.pipeline == 1 else 0.5
    forward_ms = share * profile.embedding_forward_ms * local / strategy.split
    gathers = 2 * share if strategy.tensor > 1 else 0.0
    split_ms = gathers * links.gather[strategy.tensor].of(local * profile.message_mib) if gathers else 0.0
    rate = _reduce_ms_per_mib(links, strategy) * (strategy.replicas - 1) / strategy.replicas
    forward_share, backward_share = (0.5, 1.0) if strategy.sharding is Sharding.WEIGHTS else (0.0, 0.5)
    times = []
    for end in embedding:
        if end is None:
            times.append(StrategyTime(synced_s=0.0, plain_s=0.0))
            continue
        message_ms = end.states_mib[strategy.tensor] / 8 * rate
        ahead_ms = _longer_ms(forward_ms, message_ms * forward_share, links.overlap) + split_ms
        synced_ms, plain_ms = (
            ahead_ms + _longer_ms(BACKWARD * forward_ms, message_ms * part, links.overlap)
            for part in (backward_share, backward_share - 0.5)
        )
        times.append(StrategyTime(synced_s=synced_ms / 1e3, plain_s=plain_ms / 1e3))
    return times


def _longer_ms(compute_ms: float, message_ms: float, overlap: float) -> float:
    """Time of a computation beside a message that is not slowed down by it."""
    slow_ms = compute_ms * overlap
    return message_ms + (slow_ms - message_ms) / overlap if slow_ms > message_ms else message_ms


def embedding_memory_mib(profile: LayerwiseProfile, batch: ChunkedBatch, strategy: LayerStrategy) -> list[float]:
    """Memory of the embedding, the output layer and the process itself, stage by stage."""
    share = kept_share(strategy.sharding, strategy.replicas, batch.chunks)
    found = []
    for stage, end in enumerate(_stage_embeddings(profile, batch.pipeline)):
        if end is None:
            found.append(CONTEXT_MIB)
            continue
        kept = end.activation_mib[strategy.split] * batch.local(strategy) * batch.in_flight(stage)
        found.append(end.states_mib[strategy.tensor] * share + kept + CONTEXT_MIB)
    return found


def pipeline_s(layers: Sequence[Sequence[StrategyTime]], embedding: Sequence[StrategyTime], chunks: int) -> float:
    """Seconds of a step: all chunks through all stages, and the reduction of gradients that is left over.

    Warm-up and drain of the first stage hide behind the others' where those take longer.
    """
    plain = [sum(time.plain_s for time in stage) + end.plain_s for stage, end in zip(layers, embedding, strict=True)]
    stages = len(plain)
    steady_s = sum(plain) + plain[-1] * (chunks - 1)
    ahead_s = min(stages - 1, chunks - 1) * plain[0]
    step_s = max(steady_s, max(ahead_s, sum(plain[1:])) + plain[0] * max(0, chunks + 1 - stages))
    left_s = [sum(time.synced_s for time in stage) - sum(plain[: place + 1]) for place, stage in enumerate(layers)]
    return step_s + max(0.0, *left_s)
