"""The time of a layer's kernels on one device: matrix products, memory-bound kernels and their launches.

Products take their operations over a share of the peak that falls with short sides; what is between them takes bytes
over memory bandwidth; and a layer never goes faster than the host can launch its kernels. The constants are a
device's `KernelRates`.
"""

from __future__ import annotations

from rota.planner.parallel.hardware import Accelerator
from rota.planner.parallel.transformer import TransformerShape

HALF_BYTES = 2


def matmul_s(device: Accelerator, rows: float, columns: float, inner: float) -> float:
    """The time of one product of (rows x inner) by (inner x columns)."""
    rates = device.kernels
    slack = 1 + rates.short_side * (1 / columns + 1 / inner)
    return 2 * rows * columns * inner / (device.peak_flops * rates.matmul_share) * slack


def layer_forward_s(device: Accelerator, shape: TransformerShape, *, micro_batch: int, tensor: int) -> float:
    """Device time of one layer's forward pass, without communication."""
    rates = device.kernels
    tokens, hidden, part = micro_batch * shape.seq, shape.hidden, shape.hidden / tensor
    head = shape.hidden / shape.heads
    scores = micro_batch * shape.heads / tensor
    products_s = (
        matmul_s(device, tokens, 3 * part, hidden)
        + matmul_s(device, tokens, hidden, part)
        + matmul_s(device, tokens, 4 * part, hidden)
        + matmul_s(device, tokens, hidden, 4 * part)
        + 4 * scores * shape.seq**2 * head / (device.peak_flops * rates.matmul_share)
    )
    # Activations that a layer makes, in elements: 5 hidden states that every device keeps whole (two norms, two
    # residuals, the MLP's output), 12 split ones (query, key, value, context, the MLP's 4 + 4), 2.5 score matrices.
    elements = tokens * (5 * hidden + 12 * part) + 2.5 * scores * shape.seq**2
    return products_s + rates.activation_passes * HALF_BYTES * elements / device.memory_bytes_per_s


def logits_s(device: Accelerator, shape: TransformerShape, *, micro_batch: int, tensor: int) -> float:
    """Device time of the output layer and its loss, forward and backward, without communication."""
    rates = device.kernels
    tokens, words = micro_batch * shape.seq, shape.vocab / tensor
    share = rates.whole_logit_share if tensor == 1 else rates.matmul_share
    products_s = 6 * tokens * words * shape.hidden / (device.peak_flops * share)
    return products_s + rates.logit_passes * HALF_BYTES * tokens * words / device.memory_bytes_per_s
