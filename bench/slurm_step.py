"""How long a step beside Slurm takes: 1,000 nodes, 10,000 jobs in the queue, as `squeue --json` would print them.

    .venv/bin/python bench/slurm_step.py

Reading (in a thread of its own in the manager), the look (what changed) and the engine's step are measured apart, for
the twin and for `rota slurm run` under `easy`, in time of one core. In each round 20 jobs end, 20 start, 20 arrive.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from drivers.slurm.slurm_values import job_value, node_value, running_value
from rota.core.engine.engine import Engine
from rota.core.messages.decisions import Start
from rota.core.state.state import State
from rota.drivers.slurm.commands import SlurmCommands
from rota.drivers.slurm.driver import SlurmDriver
from rota.drivers.slurm.observer import SlurmObserver
from rota.drivers.slurm.printed.records import QueueReader, SlurmReading, read_nodes
from rota.drivers.slurm.translate import cluster_of
from rota.drivers.slurm.view import SlurmView
from rota.placement import style
from rota.policies import find_policy
from rota.tenancy import allocator

RECORDED = json.loads((Path(__file__).parent.parent / "tests/drivers/slurm/squeue-22.05.json").read_text())
NODES, JOBS, ROUNDS, CHANGES = 1000, 10_000, 10, 20
Json = dict[str, Any]


class RecordedQueue:
    """A queue in Slurm's own words: one job of four GPUs on each node, the others wait."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.values: dict[int, Json] = {}
        self.number = 0
        self.looks = 0
        self.busy: dict[int, str] = {}
        for index in range(NODES):
            self.start(f"n{index}")
        for _ in range(JOBS - NODES):
            self.arrive()

    def start(self, node: str) -> None:
        self.number += 1
        value = running_value(self.number, node, "gpu:a100:4(IDX:0-3)", tres_per_node="gres:gpu:4")
        self.values[self.number] = {**value, "admin_comment": self.mark}
        self.busy[self.number] = node

    def run(self, number: int, node: str, gpus: int) -> None:
        """A job that was started runs."""
        value = running_value(number, node, f"gpu:a100:{gpus}(IDX:0-{gpus - 1})", tres_per_node=f"gres:gpu:{gpus}")
        self.values[number] = {**value, "admin_comment": self.mark, "time_limit": self.values[number]["time_limit"]}
        self.busy[number] = node

    def arrive(self) -> None:
        self.number += 1
        value = job_value(self.number, tres_per_node=f"gres:gpu:{self.number % 4 + 1}", admin_comment=self.mark)
        held = {"priority": 0, "state_reason": "JobHeldUser"} if self.mark else {}
        self.values[self.number] = {**value, "time_limit": 10 + self.number % 300, **held}

    def change(self) -> None:
        for number in list(self.busy)[:CHANGES]:
            node = self.busy.pop(number)
            self.values[number] = {**self.values[number], "job_state": "COMPLETED", "job_resources": {}}
            if not self.mark:
                self.start(node)
        for _ in range(CHANGES):
            self.arrive()

    def printed(self) -> str:
        """With all fields of a real record; each time, Slurm has evaluated every job again."""
        self.looks += 1
        every = {**RECORDED["jobs"][1], "last_sched_evaluation": self.looks}
        return json.dumps({"jobs": [{**every, **value} for value in self.values.values()], "errors": []}, indent=1)


def main() -> None:
    """Measure both."""
    nodes = read_nodes(json.dumps({"nodes": [node_value(f"n{index}") for index in range(NODES)]})).found
    print("what                read      look      engine    look + engine, worst")
    for name, mark in (("twin", ""), ("rota slurm run", "rota:placed")):
        queue, view, reader = RecordedQueue(mark), SlurmView(), QueueReader()
        view.take_nodes(SlurmReading(nodes))
        cluster = cluster_of(nodes)
        declared, options = find_policy("easy")
        alloc = allocator("none", style("any"), cluster)
        driver: SlurmObserver | SlurmDriver
        if mark:
            driver = SlurmDriver(SlurmCommands(), view, {})
            driver._spawn = lambda work: work.close()  # type: ignore[method-assign,attr-defined]  # no Slurm here
            driver.attach([node.name for node in nodes], lambda: 0.0)
            engine = Engine(State(cluster), declared.build(options, alloc), alloc)
        else:
            driver = SlurmObserver(view)
            engine = Engine(State(cluster), driver.policy, alloc)
        rows = []
        for number in range(ROUNDS + 1):
            rows.append(_round(queue, reader, view, driver, engine, 1000.0 + 2 * number))
            queue.change()
        later = rows[1:]
        middle = [statistics.median(row[part] for row in later) * 1000 for part in range(3)]
        worst = max(row[1] + row[2] for row in later) * 1000
        print(f"{name:<16}" + "".join(f"{value:7.1f} ms" for value in (*middle, worst)))


def _round(
    queue: RecordedQueue,
    reader: QueueReader,
    view: SlurmView,
    driver: SlurmObserver | SlurmDriver,
    engine: Engine,
    now_s: float,
) -> tuple[float, float, float]:
    printed = queue.printed()
    begun = time.thread_time()
    found = reader.read(printed).found
    read_s = time.thread_time() - begun
    view.take(SlurmReading(found), now_s)
    begun = time.thread_time()
    events = driver.look(engine.state, now_s, 1.8e9)
    look_s = time.thread_time() - begun
    begun = time.thread_time()
    decisions = engine.step(now_s, events)
    step_s = time.thread_time() - begun
    if isinstance(driver, SlurmObserver):
        engine.step(now_s, driver.carry_out(decisions, now_s))
    for each in decisions:
        if isinstance(each, Start) and queue.mark:
            queue.run(int(each.job_id), f"n{each.placement[0].node}", each.placement[0].devices.bit_count())
    return read_s, look_s, step_s


if __name__ == "__main__":
    main()
