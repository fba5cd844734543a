"""Device types: peak rates, memory and the interconnect that usually connects them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache

from rota.core.errors import RotaError, did_you_mean
from rota.planner.parallel.collectives import BusRate, Interconnect

GIB = 1 << 30
USABLE_SHARE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRates:
    """How close kernels come to a device's peaks, and what the host adds; fitted to measured iterations.

    `matmul_share`: of the peak, for large products; `short_side`: a side of this length halves it.
    `whole_logit_share`: the same for an output layer that is not split over devices.
    `activation_passes`, `logit_passes`: bytes that memory-bound kernels move per byte of a layer's activations and of
    the scores over the vocabulary. `layer_launch_s`: host time to launch one pass over a layer; `layer_gap_s`: device
    idle time in such a pass. `accumulate_bytes`, `adam_bytes`: bytes moved per parameter when a micro-batch's gradients
    are added up, and when the optimizer steps.
    """

    matmul_share: float
    short_side: float
    activation_passes: float
    logit_passes: float
    whole_logit_share: float
    layer_launch_s: float
    layer_gap_s: float
    accumulate_bytes: float
    adam_bytes: float


FITTED = KernelRates(
    # `rota.planner.parallel.fitting` over all of vTrain's rows; docs/reference/planner-parallel.md has the errors.
    matmul_share=0.824,
    short_side=50.4,
    activation_passes=2.68,
    logit_passes=33.6,
    whole_logit_share=0.503,
    layer_launch_s=1.16e-3,
    layer_gap_s=0.553e-3,
    accumulate_bytes=7.01,
    adam_bytes=39.8,
)

FITTED_HOPPER = KernelRates(
    # The same fit over 98 iterations of plain PyTorch on one H200 (bench/parallel_one_gpu.py).
    matmul_share=0.817,
    short_side=80.5,
    activation_passes=4.21,
    logit_passes=18.1,
    whole_logit_share=0.577,
    layer_launch_s=0.978e-3,
    layer_gap_s=0.285e-3,
    accumulate_bytes=7.41,
    adam_bytes=42.6,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One device: dense half-precision peak, memory, memory bandwidth (data sheets), interconnect, kernel rates."""

    name: str
    peak_flops: float
    memory_bytes: int
    memory_bytes_per_s: float
    interconnect: Interconnect
    kernels: KernelRates = FITTED

    @property
    def usable_bytes(self) -> int:
        """Memory that a plan may take; the rest is the allocator's, whose blocks are never all in use."""
        return int(USABLE_SHARE * self.memory_bytes)


_A100_BUS = (
    # Fitted to vTrain's NCCL tables (1-1024 MB); mean errors 2.3, 3.9 and 4.7 %.
    BusRate(ranks=2, latency_s=41.5e-6, bytes_per_s=188e9),
    BusRate(ranks=4, latency_s=48.9e-6, bytes_per_s=211e9),
    BusRate(ranks=8, latency_s=72.6e-6, bytes_per_s=222e9),
)
_V100_BUS = (
    # Fitted to vTrain's NCCL tables; mean errors 0.3, 3.2 and 6.1 %.
    BusRate(ranks=2, latency_s=23.6e-6, bytes_per_s=22.6e9),
    BusRate(ranks=4, latency_s=50.9e-6, bytes_per_s=87.7e9),
    BusRate(ranks=8, latency_s=88.9e-6, bytes_per_s=138e9),
)
# NVLink 4 carries 900 GB/s instead of NVLink 3's 600; the share that NCCL reaches is taken to be the same.
_H100_BUS = tuple(replace(rate, bytes_per_s=1.5 * rate.bytes_per_s) for rate in _A100_BUS)

ACCELERATORS: dict[str, Accelerator] = {
    device.name: device
    for device in (
        Accelerator(
            name="v100",
            peak_flops=125e12,
            memory_bytes=16 * GIB,
            memory_bytes_per_s=0.9e12,
            interconnect=Interconnect(
                intra=_V100_BUS, p2p_bytes_per_s=22e9, node_bytes_per_s=3.1e9, hop_latency_s=30e-6
            ),
        ),
        Accelerator(
            name="a100",
            peak_flops=312e12,
            memory_bytes=80 * GIB,
            memory_bytes_per_s=2.039e12,
            interconnect=Interconnect(
                intra=_A100_BUS,
                p2p_bytes_per_s=150e9,
                node_bytes_per_s=119e9,
                device_bytes_per_s=25e9,
                hop_latency_s=12.2e-6,
            ),
        ),
        Accelerator(
            name="h100",
            peak_flops=989e12,
            memory_bytes=80 * GIB,
            memory_bytes_per_s=3.35e12,
            interconnect=Interconnect(
                intra=_H100_BUS, p2p_bytes_per_s=225e9, node_bytes_per_s=400e9, device_bytes_per_s=50e9
            ),
            kernels=FITTED_HOPPER,
        ),
        Accelerator(
            name="h200",
            peak_flops=989e12,
            memory_bytes=141 * 10**9,
            memory_bytes_per_s=4.8e12,
            interconnect=Interconnect(
                intra=_H100_BUS, p2p_bytes_per_s=225e9, node_bytes_per_s=400e9, device_bytes_per_s=50e9
            ),
            kernels=FITTED_HOPPER,
        ),
    )
}


_WORDS = re.compile(r"[a-z0-9]+")
_MEMORY = re.compile(r"([1-9][0-9]{0,3})gi?b")


@cache
def _found(name: str) -> Accelerator | None:
    """The device type of a name or of a longer name that has it as a word, with the memory that it states."""
    if name.lower() in ACCELERATORS:
        return ACCELERATORS[name.lower()]
    words = _WORDS.findall(name.lower())
    types = [ACCELERATORS[word] for word in words if word in ACCELERATORS]
    if len(types) != 1:
        return None
    sizes = [int(found[1]) for word in words if (found := _MEMORY.fullmatch(word))]
    return replace(types[0], memory_bytes=sizes[0] * GIB) if len(sizes) == 1 else types[0]


def is_accelerator(name: str) -> bool:
    """Whether `accelerator` knows a name."""
    return _found(name) is not None


def accelerator(name: str) -> Accelerator:
    """The device type of that name, in any case; also of a product's, as `NVIDIA-A100-SXM4-40GB`."""
    found = _found(name)
    if found is None:
        raise RotaError(f"unknown --gpu {name!r}; {did_you_mean(name.lower(), ACCELERATORS)}")
    return found
