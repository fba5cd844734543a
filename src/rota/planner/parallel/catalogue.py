"""Models by name: the GPT shapes of PTD-P's weak scaling (Narayanan et al., SC 2021, table 1) and GPT-3.

All have sequences of 2,048 tokens and a vocabulary of 51,200. `batch` is the global batch that they were measured with.
"""

from __future__ import annotations

from dataclasses import dataclass

from rota.core.errors import RotaError, did_you_mean
from rota.planner.parallel.transformer import TransformerShape


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedModel:
    """A model that jobs can name."""

    name: str
    shape: TransformerShape
    batch: int


def _gpt(name: str, hidden: int, layers: int, heads: int, batch: int) -> NamedModel:
    shape = TransformerShape(hidden=hidden, layers=layers, heads=heads, seq=2048, vocab=51200)
    return NamedModel(name=name, shape=shape, batch=batch)


MODELS: dict[str, NamedModel] = {
    model.name: model
    for model in (
        _gpt("gpt-1.7b", 2304, 24, 24, 512),
        _gpt("gpt-3.6b", 3072, 30, 32, 512),
        _gpt("gpt-7.5b", 4096, 36, 32, 512),
        _gpt("gpt-18b", 6144, 40, 48, 1024),
        _gpt("gpt-39b", 8192, 48, 64, 1536),
        _gpt("gpt-76b", 10240, 60, 80, 1792),
        _gpt("gpt-145b", 12288, 80, 96, 2304),
        _gpt("gpt-175b", 12288, 96, 96, 1536),
        _gpt("gpt-310b", 16384, 96, 128, 2160),
        _gpt("gpt-530b", 20480, 105, 128, 2520),
        _gpt("gpt-1t", 25600, 128, 160, 3072),
    )
}


def named_model(name: str) -> NamedModel:
    """The model of that name, in any case."""
    found = MODELS.get(name.lower())
    if found is None:
        raise RotaError(f"unknown --model {name!r}; {did_you_mean(name.lower(), ['gpt', *MODELS])}")
    return found
