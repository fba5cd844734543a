"""Self-tests of a suspected node, a few seconds each: does it compute right, move bytes fast, and agree with itself?

An error of a GPU that is the node's by the table of causes is a finding. Others, such as a GPU that is full or a build
of PyTorch that does not fit the driver, prove nothing: the check can't tell.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from rota.health.causes import Blame, diagnose
from rota.health.checks.result import CheckResult, broken_check
from rota.health.node_state import Severity

SIZE = 512
REPEATS = 8
COPY_BYTES = 1 << 26
SLOWEST_COPY_BPS = 5e8


def on_gpus(check: str, test: Callable[[], CheckResult]) -> CheckResult:
    """The result of a self-test that may meet errors of GPUs, which PyTorch raises as RuntimeError."""
    try:
        return test()
    except RuntimeError as error:
        words = str(error).strip().splitlines()
        said = words[0] if words else type(error).__name__
        found = diagnose(str(error))
        if found is not None and found.cause.blame is Blame.NODE:
            return CheckResult(check=check, severity=Severity.WARNING, text=f"self-test: {said}")
        return broken_check(check, said)


def check_matmul() -> CheckResult:
    """Multiply the same matrices again and again, on every GPU that PyTorch sees or else on the CPU."""
    rng = np.random.default_rng(7)
    left, right = (rng.integers(-8, 8, (SIZE, SIZE)).astype(np.float32) for _ in range(2))
    expected = left.astype(np.int64) @ right.astype(np.int64)
    torch = _torch()
    places = [] if torch is None else [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    for place in places or ["cpu"]:
        for _ in range(REPEATS):
            # Integers this small are exact in 32-bit floating point, so that any difference is an error.
            result = left @ right if place == "cpu" else _on_gpu(torch, left, right, place)
            if not np.array_equal(result.astype(np.int64), expected):
                return CheckResult(
                    check="matmul", severity=Severity.SEVERE, text=f"self-test: wrong result of a product on {place}"
                )
    return CheckResult(check="matmul", values={"places": len(places) or 1})


def _on_gpu(torch: Any, left: Any, right: Any, place: str) -> Any:
    torch.backends.cuda.matmul.allow_tf32 = False
    return (torch.from_numpy(left).to(place) @ torch.from_numpy(right).to(place)).cpu().numpy()


def check_bandwidth() -> CheckResult:
    """Copy a block of memory, to each GPU and back where PyTorch sees some, and compare it."""
    block = np.arange(COPY_BYTES // 8, dtype=np.int64)
    torch = _torch()
    if torch is not None and torch.cuda.device_count():
        slowest = min(_gpu_copy_bps(torch, block, index) for index in range(torch.cuda.device_count()))
    else:  # how fast the host copies depends on what else runs there, and says nothing about it
        slowest = np.inf if np.array_equal(block.copy(), block) else 0.0
    if slowest == 0.0:
        return CheckResult(
            check="bandwidth", severity=Severity.SEVERE, text="self-test: a copy differs from its source"
        )
    if slowest < SLOWEST_COPY_BPS:
        return CheckResult(
            check="bandwidth", severity=Severity.WARNING, text=f"self-test: copies at {slowest / 1e9:.2f} GB/s only"
        )
    return CheckResult(check="bandwidth", values={} if slowest == np.inf else {"bytes_per_s": round(slowest)})


def _gpu_copy_bps(torch: Any, block: Any, index: int) -> float:
    """The slower direction, in bytes a second; 0 if the bytes came back changed."""
    pinned = torch.from_numpy(block).pin_memory()
    there = pinned.to(f"cuda:{index}")
    torch.cuda.synchronize(index)
    begun = time.perf_counter()
    there = pinned.to(f"cuda:{index}", non_blocking=True)
    torch.cuda.synchronize(index)
    sent = time.perf_counter()
    back = there.cpu()
    done = time.perf_counter()
    if not bool(torch.equal(back, pinned)):
        return 0.0
    return float(COPY_BYTES / max(sent - begun, done - sent, 1e-9))


def check_all_reduce() -> CheckResult:
    """Add up over all GPUs of the node by NCCL and compare; a node with fewer than two has nothing to test."""
    torch = _torch()
    count = 0 if torch is None else torch.cuda.device_count()
    if torch is None or count < 2:
        return CheckResult(check="all-reduce", text="fewer than two GPUs", values={"gpus": count})
    parts = [torch.full((1 << 20,), float(index + 1), device=f"cuda:{index}") for index in range(count)]
    begun = time.perf_counter()
    torch.cuda.nccl.all_reduce(parts)
    for index in range(count):
        torch.cuda.synchronize(index)
    took_s = time.perf_counter() - begun
    if not all(bool((part == count * (count + 1) / 2).all()) for part in parts):
        return CheckResult(
            check="all-reduce", severity=Severity.SEVERE, text="self-test: wrong result of an all-reduce"
        )
    return CheckResult(check="all-reduce", values={"gpus": count, "seconds": round(took_s, 4)})


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch
