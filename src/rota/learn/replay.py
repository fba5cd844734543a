"""Experience replay: a first-in first-out buffer of steps, from which minibatches are sampled."""

from __future__ import annotations

import numpy as np
import torch

from rota.learn.networks import Views


class ReplayBuffer:
    """Steps as arrays of one size, allocated with the first of them."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._columns: list[np.ndarray] = []
        self._next = 0
        self.filled = 0

    def add(self, columns: tuple[np.ndarray, ...]) -> None:
        """Add steps: inputs, action, weight and return."""
        if not self._columns:
            self._columns = [np.zeros((self._size, *column.shape[1:]), column.dtype) for column in columns]
        count = len(columns[0])
        at = (self._next + np.arange(count)) % self._size
        for kept, column in zip(self._columns, columns, strict=True):
            kept[at[-self._size :]] = column[-self._size :]
        self._next = (self._next + count) % self._size
        self.filled = min(self.filled + count, self._size)

    def clear(self) -> None:
        """Drop all steps."""
        self._next = self.filled = 0

    def draw(
        self, count: int, rng: np.random.Generator, device: torch.device
    ) -> tuple[Views, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Sample a minibatch: inputs, actions, weights, returns."""
        at = rng.integers(self.filled, size=min(count, self.filled))
        servers, is_open, job, free, pairs, mask, actions, weights, values = (
            torch.from_numpy(column[at]).to(device) for column in self._columns
        )
        return Views(servers, is_open, job, free, pairs, mask), actions, weights, values
