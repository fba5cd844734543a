"""Overhead of a step of `rota.sdk.steps`, inside and outside of a job, relative to steps of 1 and 10 ms.

The loop only reports a loss and checks whether to save; the time of an empty loop of the same length is subtracted.
Inside a job, progress is written once a second. A gang's task checks for a stop request in every step.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rota import sdk

STEPS = 300_000


@contextmanager
def environment(**given: str) -> Iterator[None]:
    before = {name: os.environ.pop(name, None) for name in ("ROTA_RUN_DIR", "RANK", "WORLD_SIZE")}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def empty() -> float:
    begun = time.perf_counter()
    for _ in range(STEPS):
        pass
    return time.perf_counter() - begun


def stepped() -> float:
    begun = time.perf_counter()
    for _ in (run := sdk.steps(range(STEPS))):
        run.report(loss=1.0)
        if run.should_save:
            run.saved()
    return time.perf_counter() - begun


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        cases = {
            "outside of a job": {},
            "in a job": {"ROTA_RUN_DIR": folder},
            "in a gang": {"ROTA_RUN_DIR": folder, "RANK": "1", "WORLD_SIZE": "2"},
        }
        for case, given in cases.items():
            with environment(**given):
                best = min(stepped() - empty() for _ in range(3)) / STEPS
            print(
                f"{case}: {best * 1e6:.2f} us a step, {best / 1e-3:.2%} of 1 ms, {best / 1e-2:.3%} of 10 ms (goal 1%)"
            )


if __name__ == "__main__":
    main()
