"""From the exit of a task to the start of the next one that waits for its device, on this machine.

A real `rota up` with one pretend device and a queue of jobs that each say the time first and last of all. Between
the last word of one and the first of the next lie the shell's end, the keeper's report, a step of the engine, the next
keeper and its shell. The same for bare shells that are started one after the other says how busy the machine is.
Run: `python bench/exit_to_start.py [JOBS]`.
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from managers import Manager

SAY = "date +%s.%N"
COMMAND = f"{SAY}; sleep 0.3; {SAY}"


def gaps_ms(words: list[str]) -> list[float]:
    """Between one's last word and the next one's first, sorted."""
    times = sorted(tuple(map(float, each.split())) for each in words)
    return sorted((after[0] - before[1]) * 1000 for before, after in itertools.pairwise(times))


def of_jobs(manager: Manager, jobs: int) -> list[str]:
    """What jobs of one device said, all submitted before the first has ended."""
    names = [manager.submit(COMMAND, resources={"gpus": 1}) for _ in range(jobs)]
    for name in names:
        manager.wait(name, within_s=120.0)
    return [manager.said(name) for name in names]


def of_shells(count: int) -> list[str]:
    """What shells said that were started as soon as the one before was gone."""
    return [subprocess.run(["sh", "-c", COMMAND], capture_output=True, text=True).stdout for _ in range(count)]


def told(what: str, gaps: list[float]) -> str:
    """A line of figures."""
    return f"{what}, {len(gaps)} times: median {statistics.median(gaps):.0f} ms, {gaps[0]:.0f} to {gaps[-1]:.0f} ms"


def main(jobs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        manager = Manager(Path(folder), "--emulate", "gpu=1/1").start()
        try:
            words = of_jobs(manager, jobs)
        finally:
            manager.kill()
            manager.clean_up()
    print(told("exit to next start", gaps_ms(words)), "(goal 50 on a quiet machine)")
    print(told("the same of bare shells", gaps_ms(of_shells(jobs))))
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
