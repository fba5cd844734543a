"""Time from the exit of a task to the start of the next task on the same device, on this machine.

Runs a real `rota up` with one emulated device and a queue of jobs that print the time at their start and end. Between
the last output of one and the first of the next are the exit of the shell, the supervisor's report, a step of the
engine, and the start of the next supervisor and its shell. The same figure for bare shells that are started one after
the other shows how busy the machine is.
Run: `python bench/exit_to_start.py [JOBS [ACCOUNT]]`; with an account, as root, tasks run as it and are confined.
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

PRINT_TIME = "date +%s.%N"
COMMAND = f"{PRINT_TIME}; sleep 0.3; {PRINT_TIME}"


def gaps_ms(outputs: list[str]) -> list[float]:
    """Return the times between the last output of a job and the first of the next, sorted."""
    times = sorted(tuple(map(float, each.split())) for each in outputs)
    return sorted((after[0] - before[1]) * 1000 for before, after in itertools.pairwise(times))


def of_jobs(manager: Manager, jobs: int) -> list[str]:
    """Return the output of one-device jobs that are all submitted before the first ends."""
    names = [manager.client.submit({"run": COMMAND, "workdir": "/", "resources": {"gpus": 1}})[0] for _ in range(jobs)]
    for name in names:
        manager.wait(name, within_s=120.0)
    return [manager.said(name) for name in names]


def of_shells(count: int) -> list[str]:
    """Return the output of shells that are started one after the other."""
    return [subprocess.run(["sh", "-c", COMMAND], capture_output=True, text=True).stdout for _ in range(count)]


def summary(what: str, gaps: list[float]) -> str:
    """Return a line of figures."""
    return f"{what}, {len(gaps)} times: median {statistics.median(gaps):.0f} ms, {gaps[0]:.0f} to {gaps[-1]:.0f} ms"


def main(jobs: int, account: str | None) -> None:
    confined = () if account is None else ("--run-as", account)
    with tempfile.TemporaryDirectory(dir=account and "/var/lib", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        manager = Manager(Path(folder), "--emulate", "gpu=1/1", *confined).start()
        try:
            outputs = of_jobs(manager, jobs)
        finally:
            manager.kill()
            manager.clean_up()
    what = "exit to next start" if account is None else "exit to next start, confined"
    print(summary(what, gaps_ms(outputs)), "(goal 50 on a quiet machine)")
    print(summary("the same for bare shells", gaps_ms(of_shells(jobs))))
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40, sys.argv[2] if len(sys.argv) > 2 else None)
