"""What is known of a model's layers and of the links: profiled figures, or those of the cost model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rota.planner.parallel.collectives import Ring, all_gather_s, all_reduce_s, all_to_all_s, send_s
from rota.planner.parallel.hardware import Accelerator
from rota.planner.parallel.kernels import HALF_BYTES, layer_forward_s, logits_s
from rota.planner.parallel.memory import layer_activation_bytes
from rota.planner.parallel.transformer import TransformerShape

MIB = 1 << 20
FULL_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTimes:
    """How long a collective takes by size: measured sizes as they are, a line through them for the rest."""

    measured_ms: Mapping[float, float]
    slope_ms_per_mib: float
    start_ms: float

    def of(self, size_mib: float) -> float:
        """Milliseconds for a message of that size."""
        known = self.measured_ms.get(size_mib)
        return self.slope_ms_per_mib * size_mib + self.start_ms if known is None else known


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTimes:
    """Links of the devices: reduction per MiB by ranks, gathers and exchanges by ranks, sends by number of stages.

    `near` and `far` tell groups of neighbours from groups of devices that are apart. `overlap` is the factor by which
    computation and communication slow each other down while both go on.
    """

    near_reduce_ms_per_mib: Mapping[int, float]
    far_reduce_ms_per_mib: Mapping[int, float]
    gather: Mapping[int, MessageTimes]
    exchange: Mapping[int, MessageTimes]
    send_ms_per_mib: Mapping[int, float]
    overlap: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingMemory:
    """Memory of embedding and output layer on one stage: states by tensor degree, activations per sequence."""

    states_mib: Mapping[int, float]
    activation_mib: Mapping[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerwiseProfile:
    """A model of equal layers: forward times for one sequence, 32-bit parameters, activations by how they are split.

    `whole` is the memory of the embedding and the output layer on a single stage; `first` and `last` are that of the
    embedding on the first and of the output layer on the last of several stages.
    """

    layers: int
    layer_forward_ms: float
    embedding_forward_ms: float
    parameter_mib: float
    activation_mib: Mapping[int, float]
    recomputed_mib: float
    message_mib: float
    whole: EmbeddingMemory
    first: EmbeddingMemory
    last: EmbeddingMemory


def line_through(times_ms: Mapping[float, float]) -> MessageTimes:
    """Message times with the least-squares line through what was measured."""
    import numpy as np

    slope, start = np.polyfit(list(times_ms), list(times_ms.values()), 1)
    return MessageTimes(measured_ms=dict(times_ms), slope_ms_per_mib=float(slope), start_ms=float(start))


def _powers(most: int) -> list[int]:
    return [1 << power for power in range(most.bit_length()) if 1 << power <= most]


def modelled_links(device: Accelerator, gpus: int, per_node: int) -> LinkTimes:
    """The links of the cost model, for groups of neighbours and for groups across all nodes."""
    interconnect = device.interconnect
    probe_mib = 64.0

    def ring(ranks: int, *, near: bool) -> Ring:
        spread = max(1, gpus // ranks)
        on_node = min(ranks, per_node) if near else min(ranks, max(1, per_node // spread))
        return Ring(ranks=ranks, per_node=on_node, groups_per_node=max(1, min(per_node, gpus) // on_node))

    def reduce_ms_per_mib(ranks: int, *, near: bool) -> float:
        if ranks == 1:
            return 0.0
        share = 2 * (ranks - 1) / ranks  # callers count what each rank sends, as Galvatron's messages do
        return 1e3 * all_reduce_s(interconnect, ring(ranks, near=near), probe_mib * MIB) / probe_mib / share

    def gather(ranks: int) -> MessageTimes:
        start, probe = (
            1e3 * all_gather_s(interconnect, ring(ranks, near=True), size * MIB) for size in (1.0, probe_mib)
        )
        slope = (probe - start) / (probe_mib - 1)
        return MessageTimes(measured_ms={}, slope_ms_per_mib=slope, start_ms=start - slope)

    def exchange(ranks: int) -> MessageTimes:
        start, probe = (
            1e3 * all_to_all_s(interconnect, ring(ranks, near=True), size * MIB) for size in (1.0, probe_mib)
        )
        slope = (probe - start) / (probe_mib - 1)
        return MessageTimes(measured_ms={}, slope_ms_per_mib=slope, start_ms=start - slope)

    sizes = _powers(gpus)
    crosses = gpus > per_node
    sent_ms = 1e3 * send_s(
        interconnect, probe_mib * MIB, crosses_nodes=crosses, senders_per_node=min(per_node, gpus) if crosses else 1
    )
    return LinkTimes(
        near_reduce_ms_per_mib={ranks: reduce_ms_per_mib(ranks, near=True) for ranks in sizes},
        far_reduce_ms_per_mib={ranks: reduce_ms_per_mib(ranks, near=False) for ranks in sizes},
        gather={ranks: gather(ranks) for ranks in sizes if ranks > 1},
        exchange={ranks: exchange(ranks) for ranks in sizes if ranks > 1},
        send_ms_per_mib={stages: sent_ms / probe_mib for stages in sizes if stages > 1},
        overlap=1.15,
    )


def modelled_profile(device: Accelerator, shape: TransformerShape, most: int) -> LayerwiseProfile:
    """The profile that the cost model gives a transformer, for splits over up to `most` devices."""
    splits = _powers(most)
    embedding_mib = FULL_BYTES * shape.embedding_parameters / MIB
    score_mib = 10 * shape.seq * shape.vocab / MIB
    hidden_mib = HALF_BYTES * shape.seq * shape.hidden / MIB
    forward_ms = 1e3 * layer_forward_s(device, shape, micro_batch=1, tensor=1)
    return LayerwiseProfile(
        layers=shape.layers,
        layer_forward_ms=forward_ms + 1e3 * device.kernels.layer_gap_s,
        embedding_forward_ms=1e3 * logits_s(device, shape, micro_batch=1, tensor=1) / 3,
        parameter_mib=FULL_BYTES * shape.layer_parameters / MIB,
        activation_mib={
            split: layer_activation_bytes(shape, micro_batch=1, tensor=1) / split / MIB for split in splits
        },
        recomputed_mib=hidden_mib,
        message_mib=hidden_mib,
        whole=_embedding_memory(splits, 2 * 4 * embedding_mib, hidden_mib + score_mib),
        first=_embedding_memory(splits, 4 * embedding_mib, hidden_mib),
        last=_embedding_memory(splits, 4 * embedding_mib, score_mib),
    )


def _embedding_memory(splits: list[int], states_mib: float, activation_mib: float) -> EmbeddingMemory:
    return EmbeddingMemory(
        states_mib={split: states_mib / split for split in splits},
        activation_mib={split: activation_mib / split for split in splits},
    )
