"""Galvatron's published profile of a LLaMA-like model of 28 layers on one node of 8 GPUs, and the optima it asserts.

Figures from PKU-DAIR/Hetu-Galvatron (Apache-2.0): `tests/utils/search_configs.py` (times for one sequence by length,
memory at 8,192 tokens, bandwidths, times of collectives by size) and `tests/search_engine/
test_parallelsim_optimization.py` (the optima).
"""

from __future__ import annotations

from collections.abc import Mapping

from rota.planner.parallel.layerwise.planner import LayerwiseTask
from rota.planner.parallel.layerwise.profile import (
    MIB,
    EmbeddingMemory,
    LayerwiseProfile,
    LinkTimes,
    MessageTimes,
    line_through,
)

SEQ, HIDDEN = 8192, 4096
OPTIMA = {"32 micro-batches, layer by layer": 2.6485091403918064, "8 micro-batches, all alike": 2.5246283459057333}
"""Sequences per second that the tests assert."""
_LENGTHS = tuple(4096 * step for step in range(1, 9))
_LAYER_MS = (
    12.4057201385498,
    28.454231262207003,
    39.43479309082031,
    52.60663909912111,
    70.75289154052746,
    82.6971145629883,
    106.13850097656245,
    123.1998901367187,
)
_EMBEDDING_MS = (
    31.97360305786134,
    56.27244796752933,
    86.6235107421875,
    121.2523483276367,
    141.90354614257797,
    177.68662719726558,
    197.4156311035157,
    225.79444885253918,
)
_SIZES_MIB = tuple(float(1 << power) for power in range(11))
_ALL_REDUCE_MS = {
    8: (0.07895, 0.1094, 0.1333, 0.1827, 0.2941, 0.4157, 0.6519, 1.2826, 2.3584, 4.6768, 8.1409),
    4: (0.07981, 0.09109, 0.1091, 0.1581, 0.2183, 0.3205, 0.5848, 1.0725, 2.0709, 3.7352, 7.1874),
    2: (0.0703, 0.07932, 0.09008, 0.1084, 0.1434, 0.2281, 0.3924, 0.7417, 1.3887, 2.6886, 5.1594),
}
_ALL_TO_ALL_MS = {
    8: (0.1124, 0.1135, 0.1109, 0.1502, 0.2003, 0.243, 0.3997, 0.7135, 1.2981, 2.4822, 4.8151),
    4: (0.05244, 0.07992, 0.1065, 0.1255, 0.1514, 0.2237, 0.3654, 0.6439, 1.1567, 2.1003, 4.0389),
    2: (0.0709, 0.09942, 0.11, 0.1047, 0.1203, 0.1788, 0.2928, 0.4756, 0.8806, 1.7752, 3.4954),
}


def _at(values_ms: tuple[float, ...], power: int) -> float:
    """The time at the model's sequence length on the polynomial through the profile."""
    import numpy as np

    return float(np.polyval(np.polyfit(_LENGTHS, values_ms, power), SEQ))


def _by_size(table: Mapping[int, tuple[float, ...]], share: float) -> dict[int, MessageTimes]:
    return {
        ranks: line_through({size: share * time for size, time in zip(_SIZES_MIB, times, strict=True)})
        for ranks, times in table.items()
    }


def _halved(one: float) -> dict[int, float]:
    return {split: one / split for split in (1, 2, 4, 8)}


def published_profile() -> LayerwiseProfile:
    """The model's layers: times on polynomials through the profile, memory as profiled."""
    return LayerwiseProfile(
        layers=28,
        layer_forward_ms=_at(_LAYER_MS, 2),
        embedding_forward_ms=_at(_EMBEDDING_MS, 1),
        parameter_mib=973.771484375,
        activation_mib=_halved(2088.28955078125),
        recomputed_mib=56.0,
        message_mib=2 * SEQ * HIDDEN / MIB,
        whole=EmbeddingMemory(states_mib=_halved(16768.54296875), activation_mib=_halved(5487.8828125)),
        first=EmbeddingMemory(states_mib=_halved(8351.5009765625), activation_mib=_halved(787.1483154296875)),
        last=EmbeddingMemory(states_mib=_halved(8351.5556640625), activation_mib=_halved(5073.4478759765625)),
    )


def published_links() -> LinkTimes:
    """The node's links: bandwidths in GB/s as MiB per millisecond, as Galvatron reads them."""
    return LinkTimes(
        near_reduce_ms_per_mib={1: 0.0, 2: 1 / 155.647, 4: 1 / 164.272, 8: 1 / 160.445},
        far_reduce_ms_per_mib={1: 0.0, 2: 1 / 153.933, 4: 1 / 165.493, 8: 1 / 160.445},
        gather=_by_size(_ALL_REDUCE_MS, 0.5),
        exchange=_by_size(_ALL_TO_ALL_MS, 1.0),
        send_ms_per_mib={2: 1 / 147.32, 4: 1 / 133.469, 8: 1 / 108.616},
        overlap=1.1534195950157762,
    )


def published_task(name: str, unit_mib: int = 1) -> LayerwiseTask:
    """The task of one of the asserted optima: 36 GB per device and a batch of 64."""
    fine = name == "32 micro-batches, layer by layer"
    return LayerwiseTask(
        profile=published_profile(),
        links=published_links(),
        gpus=8,
        memory_mib=36 * 1024,
        batch=64,
        chunks=32 if fine else 8,
        fine=fine,
        unit_mib=unit_mib,
    )
