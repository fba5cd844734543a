"""Forward runs in several processes: each is a fork of this one, which has the state already."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict

from rota.core.model.job import JobId
from rota.forecast.forward import RunResult
from rota.forecast.predict import Sampler, in_this_process


def in_forks(processes: int) -> Sampler:
    """Return a sampler that shares runs among forks of a process without threads; each takes every n-th run."""

    def sample(one: Callable[[int], RunResult | None], numbers: Iterable[int]) -> list[RunResult]:
        shares = [list(numbers)[first::processes] for first in range(processes)]
        pipes = [_begin(one, share) for share in shares[1:] if share]
        found = list(enumerate(in_this_process(one, shares[0])))
        ordered = [(turn * processes, result) for turn, result in found]
        for first, (reader, process) in enumerate(pipes, start=1):
            with os.fdopen(reader, encoding="utf-8") as answers:
                results = [_decode(line) for line in answers]
            os.waitpid(process, 0)
            ordered += [(turn * processes + first, result) for turn, result in enumerate(results)]
        return [result for _, result in sorted(ordered, key=lambda pair: pair[0])]

    return sample


def _begin(one: Callable[[int], RunResult | None], numbers: list[int]) -> tuple[int, int]:
    """Start a fork that carries out runs; return where it writes and its id."""
    reader, writer = os.pipe()
    process = os.fork()
    if process:
        os.close(writer)
        return reader, process
    try:
        os.close(reader)
        with os.fdopen(writer, "w", encoding="utf-8") as answers:
            for number in numbers:
                result = one(number)
                if result is None:
                    break
                answers.write(json.dumps(asdict(result)) + "\n")
    finally:
        os._exit(0)


def _decode(line: str) -> RunResult:
    value = json.loads(line)
    return RunResult(**{**value, "ahead": tuple(JobId(name) for name in value["ahead"])})
