"""Layers of known models: parameters and operations of each from the published architecture, times in proportion.

The forward pass takes a third of the computing, the backward pass two thirds. Frameworks reduce gradients in buckets,
so that they become ready in steps.
"""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.errors import RotaError, did_you_mean
from rota.network.gradients import LayerGradient

BYTES = 4
FORWARD = 1 / 3

Layer = tuple[float, float]
"""Parameters and operations."""


def _conv(channels: int, filters: int, kernel: int, side: int) -> Layer:
    parameters = channels * filters * kernel * kernel
    return float(parameters), float(parameters * side * side)


def _dense(inputs: int, outputs: int, times: int = 1) -> Layer:
    return float(inputs * outputs + outputs), float(inputs * outputs * times)


def vgg(repeats: Sequence[int]) -> list[Layer]:
    """Return the layers of a VGG with so many convolutions in each of its five stages."""
    layers, channels, side = [], 3, 224
    for filters, count in zip((64, 128, 256, 512, 512), repeats, strict=True):
        for _ in range(count):
            layers.append(_conv(channels, filters, 3, side))
            channels = filters
        side //= 2
    return [*layers, _dense(512 * 49, 4096), _dense(4096, 4096), _dense(4096, 1000)]


def resnet(repeats: Sequence[int]) -> list[Layer]:
    """Return the layers of a ResNet of bottlenecks with so many blocks in each of its four stages."""
    layers = [_conv(3, 64, 7, 112)]
    channels, side = 64, 56
    for stage, count in enumerate(repeats):
        width = 64 << stage
        for block in range(count):
            layers += [_conv(channels, width, 1, side), _conv(width, width, 3, side), _conv(width, 4 * width, 1, side)]
            if block == 0:
                layers.append(_conv(channels, 4 * width, 1, side))
            channels = 4 * width
        side //= 2
    return [*layers, _dense(2048, 1000)]


def transformer(blocks: int, width: int, words: int, length: int) -> list[Layer]:
    """Return the layers of a transformer: the embedding, then attention and feed-forward of each block."""
    layers = [(float(words * width), float(width * length))]
    for _ in range(blocks):
        layers += [_dense(width, 4 * width, length), _dense(width, 4 * width, length), _dense(4 * width, width, length)]
    return layers


ARCHITECTURES = {
    "resnet50": (resnet((3, 4, 6, 3)), 0.18),
    "resnet101": (resnet((3, 4, 23, 3)), 0.30),
    "vgg16": (vgg((2, 2, 3, 3, 3)), 0.25),
    "vgg19": (vgg((2, 2, 4, 4, 4)), 0.30),
    "bert-base": (transformer(12, 768, 30522, 128), 0.20),
    "sockeye": (transformer(12, 512, 32000, 64), 0.10),
}
"""Layers by model, and the seconds of computing of one iteration."""


def profile_of(model: str, bucket_bytes: float = 4e6, batch: float = 1.0) -> list[LayerGradient]:
    """Return the profile of a model whose gradients become ready in buckets of so many bytes."""
    if model not in ARCHITECTURES:
        raise RotaError(f"unknown model {model!r}; {did_you_mean(model, ARCHITECTURES)}")
    layers, compute_s = ARCHITECTURES[model]
    compute_s *= batch
    operations = sum(work for _, work in layers)
    ready, now_s = [0.0] * len(layers), 0.0
    bucket: list[int] = []
    size = 0.0
    for layer in reversed(range(len(layers))):
        now_s += (1 - FORWARD) * compute_s * layers[layer][1] / operations
        bucket.append(layer)
        size += layers[layer][0] * BYTES
        if size >= bucket_bytes or layer == 0:
            for each in bucket:
                ready[each] = now_s
            bucket, size = [], 0.0
    return [
        LayerGradient(size=parameters * BYTES, forward_s=FORWARD * compute_s * work / operations, ready_s=ready[layer])
        for layer, (parameters, work) in enumerate(layers)
    ]
