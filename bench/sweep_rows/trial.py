"""A trial of `bench/sweep.py`: trains a network on handwritten digits, pauses when it is told to, and goes on later.

Usage: `trial.py DIGITS.npz FOLDER EPOCHS LEAST_S`. Every epoch is written down in FOLDER, so that one that is
done twice, or a trial that runs twice at a time, is found. An epoch takes LEAST_S at least, as many run on few cores.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import rota.sdk


class Network:
    """One hidden layer, trained by gradient descent with momentum and weight decay."""

    def __init__(self, units: int, classes: int, inputs: int) -> None:
        random = np.random.default_rng(1)
        self.weights = [
            random.normal(0, np.sqrt(2 / inputs), (inputs, units)),
            np.zeros(units),
            random.normal(0, np.sqrt(2 / units), (units, classes)),
            np.zeros(classes),
        ]
        self.moments = [np.zeros_like(each) for each in self.weights]

    def outputs(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the hidden layer and the probabilities."""
        first, first_bias, second, second_bias = self.weights
        hidden = np.maximum(inputs @ first + first_bias, 0)
        scores = hidden @ second + second_bias
        scores -= scores.max(axis=1, keepdims=True)
        exponents = np.exp(scores)
        return hidden, exponents / exponents.sum(axis=1, keepdims=True)

    def loss(self, inputs: np.ndarray, labels: np.ndarray) -> float:
        """Return the mean cross-entropy."""
        chosen = self.outputs(inputs)[1][np.arange(len(labels)), labels]
        return float(-np.log(np.maximum(chosen, 1e-12)).mean())

    def learn(self, inputs: np.ndarray, labels: np.ndarray, lr: float, momentum: float, decay: float) -> None:
        """Make one step."""
        hidden, wrong = self.outputs(inputs)
        wrong[np.arange(len(labels)), labels] -= 1
        wrong /= len(labels)
        back = (wrong @ self.weights[2].T) * (hidden > 0)
        slopes = (inputs.T @ back, back.sum(axis=0), hidden.T @ wrong, wrong.sum(axis=0))
        for weight, moment, slope in zip(self.weights, self.moments, slopes, strict=True):
            moment *= momentum
            moment -= lr * (slope + decay * weight)
            weight += moment


def main(digits: Path, folder: Path, epochs: int, least_s: float) -> None:
    trial = os.environ["ROTA_TRIAL"]
    with (folder / f"lock-{trial}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if the trial runs twice at a time
        train(trial, digits, folder, epochs, least_s)


def train(trial: str, digits: Path, folder: Path, epochs: int, least_s: float) -> None:
    params = rota.sdk.params()
    with np.load(digits) as data:
        inputs, labels, others, answers = (data[name] for name in ("train_x", "train_y", "test_x", "test_y"))
    network = Network(int(params["units"]), 10, inputs.shape[1])
    saved = folder / f"trial-{trial}.npz"
    run = rota.sdk.steps(lambda first: range(first, epochs), steps=epochs)
    if run.step:
        with np.load(saved) as state:
            network.weights = [state[f"w{index}"] for index in range(4)]
            network.moments = [state[f"m{index}"] for index in range(4)]
    batch = int(params["batch"])
    for epoch in run:
        begun_s = time.monotonic()
        order = np.random.default_rng(epoch).permutation(len(labels))
        with np.errstate(all="ignore"):
            for first in range(0, len(order), batch):
                chosen = order[first : first + batch]
                network.learn(inputs[chosen], labels[chosen], params["lr"], params["momentum"], params["decay"])
            loss = network.loss(others, answers)
        run.report(loss=loss)
        with (folder / "epochs").open("a", encoding="utf-8") as done:
            done.write(f"{trial} {epoch} {loss!r}\n")
        time.sleep(max(0.0, begun_s + least_s - time.monotonic()))
        if run.should_save:
            arrays: dict[str, Any] = {f"w{index}": each for index, each in enumerate(network.weights)}
            arrays |= {f"m{index}": each for index, each in enumerate(network.moments)}
            np.savez(saved, **arrays)
            run.saved()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
