"""CPU time of simulations without a network against another revision.

`python bench/against_revision.py FOLDER [REPEATS]`, where FOLDER is a checkout of the other revision, compiled likewise
(`git worktree add FOLDER REVISION`, then its `tools/compile.py`). Runs of both alternate on the first 10,000 jobs of
the Philly trace, so that what else the machine does meets both; the least time of each counts. `ROTA_DATA` is the
folder of real traces.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

POLICIES = ("fifo", "las", "srtf")
HERE = Path(__file__).resolve().parent.parent
RUN = "from rota.cli.main import run; run()"


def cpu_s(checkout: Path, trace: Path, policy: str) -> float:
    """CPU seconds of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", RUN, "sim", "--trace", str(trace), "--cluster", "gpu=512/8", "--policy", policy]
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def is_compiled(checkout: Path) -> bool:
    """Whether the hot modules of a checkout are compiled."""
    return any((checkout / "src").glob("rota/core/engine/*.so"))


def main() -> None:
    if len(sys.argv) < 2 or "ROTA_DATA" not in os.environ:
        raise SystemExit("usage: ROTA_DATA=FOLDER python bench/against_revision.py CHECKOUT [REPEATS]")
    other, repeats = Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 4
    trace = Path(os.environ["ROTA_DATA"]) / "tiresias" / "philly10000_tiresias.csv"
    if is_compiled(HERE) != is_compiled(other):
        raise SystemExit("one of both is compiled and the other is not; run tools/compile.py in both")
    print(f"compiled: {is_compiled(HERE)}\n\n| policy | other revision, CPU s | this one | ratio |\n|---|---|---|---|")
    for policy in POLICIES:
        found: dict[Path, list[float]] = {other: [], HERE: []}
        for _ in range(repeats):
            for checkout, times in found.items():
                times.append(cpu_s(checkout, trace, policy))
        least = {checkout: min(times) for checkout, times in found.items()}
        print(f"| {policy} | {least[other]:.2f} | {least[HERE]:.2f} | {least[HERE] / least[other]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
