"""Demands of common kinds of tasks on a shared server: the constants of the contention model, with sources.

They were fixed before any policy was trained on them. Schedulers never see them, only the resulting speeds.

[TF] TensorFlow's benchmarks of May 2017 (tensorflow.org/performance/benchmarks): images per second of one P100,
synthetic data, and the batch size. AlexNet on four P100s of a DGX-1 with real data stays at 7,105 images per second
where the GPUs could do 10,509: the 40 cores then decode and augment 178 images per second each.

[KERAS] Parameters as listed at keras.io/api/applications; [ALEX] Krizhevsky et al., NIPS 2012 (60 million).

[ATTN] Vaswani et al., NIPS 2017: 65 and 213 million parameters, 0.4 and 1.0 s per step on P100s.

[CPU] Intel's data sheet of the Xeon E5-2698 v4 of a DGX-1: 20 cores, 76.8 GB/s of memory bandwidth per socket, of which
STREAM-like access gets about four fifths.

[PCIE] PCI Express 3.0 x16: 15.75 GB/s, of which copies get about 12.

[US] Our assumption, of a usual order of magnitude.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

GB = 1e9
PARAMETER_BYTES = 4
IMAGES_PER_CORE_S = 178.0  # [TF]
IMAGE_BYTES = 224 * 224 * 3 * 4
"""Bytes of a decoded image as copied to the device."""
MEMORY_PASSES = 10  # [US] decode, crop, convert, batch, pin: how often an image's bytes cross the memory bus
UPDATE_PASSES = 6  # [US] receive, add, read the optimiser's state, write it, write and send the parameter
SERVER_BYTES_S = 6.0 * GB  # [US] gradient bytes that one parameter server takes in when nothing is in its way


class ServerCapacity(NamedTuple):
    """What the tasks of a server share: half a DGX-1 behind 25 Gb/s."""

    cores: float = 20.0  # [CPU]
    memory_bytes_s: float = 61.0 * GB  # [CPU]
    pcie_bytes_s: float = 12.0 * GB  # [PCIE] one uplink for all devices
    nic_bytes_s: float = 3.125 * GB  # [US] 25 Gb/s Ethernet


class Exchange(Enum):
    """What tasks of a kind send to each other in a step."""

    GRADIENTS = "gradients"
    """To parameter servers and back if the job has some, else around a ring."""
    SHUFFLE = "shuffle"
    """An equal part to every task, as between map and reduce."""


class TaskDemands(NamedTuple):
    """Demands of one kind of task per step."""

    step_s: float
    """Seconds of a worker alone, without communication."""
    bytes: float
    """Gradients, or what a task shuffles."""
    cores: float
    """Busy cores that sustain this speed of a worker."""
    memory_bytes_s: float
    """Memory traffic at this speed."""
    pcie_bytes_s: float
    host: float
    """Fraction of the step that waits for memory and PCIe rather than cores: launches, copies, cache misses."""
    exchange: Exchange = Exchange.GRADIENTS
    uses_device: bool = True


def _vision(parameters: float, batch: int, images_s: float, host: float) -> TaskDemands:
    """Return the demands of an image model by its published size and speed."""
    gradient_bytes = parameters * PARAMETER_BYTES
    step_s = batch / images_s
    return TaskDemands(
        step_s=step_s,
        bytes=gradient_bytes,
        cores=images_s / IMAGES_PER_CORE_S,
        memory_bytes_s=images_s * IMAGE_BYTES * MEMORY_PASSES,
        pcie_bytes_s=images_s * IMAGE_BYTES + 2 * gradient_bytes / step_s,
        host=host,
    )


def _language(parameters: float, step_s: float) -> TaskDemands:
    """Return the demands of a translation model: little input, many small kernels [US]."""
    gradient_bytes = parameters * PARAMETER_BYTES
    traffic = 2 * gradient_bytes / step_s
    return TaskDemands(
        step_s=step_s, bytes=gradient_bytes, cores=1.0, memory_bytes_s=2 * traffic, pcie_bytes_s=traffic, host=0.3
    )


KINDS: Mapping[str, TaskDemands] = {
    "inception3": _vision(23.9e6, 64, 142.0, 0.10),  # [TF] [KERAS]
    "resnet50": _vision(25.6e6, 64, 219.0, 0.15),  # [TF] [KERAS]
    "resnet152": _vision(60.4e6, 64, 91.8, 0.10),  # [TF] [KERAS]
    "vgg16": _vision(138.4e6, 64, 154.0, 0.15),  # [TF] [KERAS]
    "alexnet": _vision(60.0e6, 512, 2987.0, 0.35),  # [TF] [ALEX]
    "transformer": _language(65e6, 0.4),  # [ATTN]
    "transformer-big": _language(213e6, 1.0),  # [ATTN]
    "mapreduce": TaskDemands(  # [US] a task sorts 1 GB in 8 s with 3 cores and sends all of it
        step_s=8.0,
        bytes=1.0 * GB,
        cores=3.0,
        memory_bytes_s=1.5 * GB,
        pcie_bytes_s=0.0,
        host=0.2,
        exchange=Exchange.SHUFFLE,
        uses_device=False,
    ),
    "hpc": TaskDemands(  # [US] a stencil code that streams through memory with 4 cores, 5 GB/s each
        step_s=1.0,
        bytes=0.02 * GB,
        cores=4.0,
        memory_bytes_s=20.0 * GB,
        pcie_bytes_s=0.0,
        host=0.8,
        uses_device=False,
    ),
}
"""By the name that a job gives as its model."""
