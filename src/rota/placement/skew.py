"""Models that run slower when spread: those with one tensor that dominates (Gu et al., NSDI 2019).

The share of the largest tensor is plain arithmetic on the published layer shapes, e.g. VGG-16's first fully
connected layer has 25,088 x 4,096 of 138 million parameters.
"""

from __future__ import annotations

PACK_LIMIT = 0.5
"""A model is skewed if its largest tensor holds more than this share of all parameters."""

LARGEST_TENSOR_SHARE = {
    "alexnet": 37.7 / 61.1,
    "googlenet": 1.0 / 6.6,
    "inception3": 2.0 / 27.2,
    "inception4": 1.5 / 42.7,
    "resnet50": 2.4 / 25.6,
    "resnet101": 2.4 / 44.5,
    "resnet152": 2.4 / 60.2,
    "vgg11": 102.8 / 132.9,
    "vgg16": 102.8 / 138.4,
    "vgg19": 102.8 / 143.7,
}


def is_skewed(model: str | None) -> bool:
    """Whether a model has to be consolidated; an unknown one has not."""
    return model is not None and LARGEST_TENSOR_SHARE.get(model.lower(), 0.0) > PACK_LIMIT
