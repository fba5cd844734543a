"""Looks of the deciding driver: what it skips because nothing changed makes no difference."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from drivers.slurm.slurm_values import job_value, node_value, running_value
from rota.core.engine.engine import Engine
from rota.core.messages.decisions import Decision, Start, Stop
from rota.core.state.state import State
from rota.drivers.slurm import marks
from rota.drivers.slurm.commands import SlurmCommands
from rota.drivers.slurm.driver import SlurmDriver
from rota.drivers.slurm.printed.records import QueueReader, SlurmReading, read_nodes
from rota.drivers.slurm.translate import cluster_of
from rota.drivers.slurm.view import SlurmView
from rota.placement import style
from rota.policies import find_policy
from rota.tenancy import allocator

Json = dict[str, Any]
NODES = ("n1", "n2", "n3")


class Quiet(SlurmDriver):
    """A driver whose orders go nowhere; the test does to its queue what they ask for."""

    def _spawn(self, work: Any) -> None:
        work.close()

    def _begin(self, name: str, work: Any, *, is_start: bool) -> None:
        super()._begin(name, work, is_start=is_start)
        work.close()
        self._orders[name].is_sent = True


class RandomQueue:
    """A queue that users and Slurm change at random."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.values: dict[int, Json] = {}

    def obey(self, decisions: list[Decision]) -> None:
        """Start and stop as was decided, or a little later."""
        for each in decisions:
            number = int(str(each.job_id))
            if isinstance(each, Start) and self._rng.random() < 0.9:
                node = NODES[each.placement[0].node]
                gpus = each.placement[0].devices.bit_count()
                value = running_value(
                    number, node, f"gpu:a100:{gpus}(IDX:0-{gpus - 1})", tres_per_node=f"gres:gpu:{gpus}"
                )
                self.values[number] = {**value, "admin_comment": marks.PLACED}
            elif isinstance(each, Stop):
                self.requeue(number)

    def requeue(self, number: int) -> None:
        value = self.values[number]
        self.values[number] = {**value, **_held(), "job_state": "PENDING", "job_resources": {}, "restart_cnt": 1}

    def change(self) -> None:
        """Some jobs arrive, end, are requeued, cancelled, held by their users or forgotten."""
        for _ in range(self._rng.randrange(4)):
            number = len(self.values) + 1
            more = {"dependency": f"afterany:{number - 1}"} if self._rng.random() < 0.2 and number > 1 else {}
            gpus = self._rng.randrange(1, 4)
            self.values[number] = {**job_value(number, tres_per_node=f"gres:gpu:{gpus}"), **_held(), **more}
        for number in [each for each in self.values if self._rng.random() < 0.15]:
            value, kind = self.values[number], self._rng.randrange(4)
            if value["job_state"] == "RUNNING" and kind < 2:
                self.values[number] = {**value, "job_state": "COMPLETED", "job_resources": {}}
            elif value["job_state"] == "RUNNING" and kind == 2:
                self.requeue(number)
            elif value["job_state"] == "PENDING" and kind == 3:
                self.values[number] = {**value, "job_state": "CANCELLED"}

    def printed(self) -> str:
        """What `squeue --json` would print; Slurm has forgotten some that ended."""
        return json.dumps({"jobs": list(self.values.values()), "errors": []})


def _held() -> Json:
    return {"priority": 0, "state_reason": "JobHeldAdmin", "admin_comment": marks.HELD, "eligible_time": 0}


@pytest.mark.parametrize("seed", range(8))
def test_skipped_jobs_make_no_difference(seed: int) -> None:
    rng = random.Random(seed)
    queue, reader = RandomQueue(rng), QueueReader()
    nodes = read_nodes(json.dumps({"nodes": [node_value(name) for name in NODES]})).found
    cluster = cluster_of(nodes)
    declared, options = find_policy("easy")
    alloc = allocator("none", style("any"), cluster)
    engine = Engine(State(cluster), declared.build(options, alloc), alloc)
    drivers = [Quiet(SlurmCommands(), SlurmView(), {}) for _ in range(2)]
    for driver in drivers:
        driver.view.take_nodes(SlurmReading(nodes))
        driver.attach(NODES, lambda: 0.0)
    skipped = 0
    for turn in range(40):
        queue.change()
        found = reader.read(queue.printed()).found
        now_s = 1000.0 + turn
        drivers[1]._settled.clear()
        answers = []
        for driver in drivers:
            driver.view.take(SlurmReading(found), now_s)
            answers.append(driver.look(engine.state, now_s, 1.8e9))
        assert answers[0] == answers[1]
        decisions = list(engine.step(now_s, answers[0]))
        for driver in drivers:
            driver.carry_out(decisions, now_s)
        queue.obey(decisions)
        skipped += len(drivers[0]._settled)
    assert skipped > 50
