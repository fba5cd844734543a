"""Speed of cells under an engine on a large cluster: 10,000 nodes, 80,000 devices, 4 levels, 100 tenants.

CPU time of one process on one core: to build all cells and start the engine; gang placements per second (the steps of
the engine in which a gang arrives, others are preempted for it and it starts: from an empty cluster to a full one, then
with one gang ending for each arrival); and one step in which the tenants' guarantees change while jobs run. The targets
are 1,000 placements per second and 5 s; the last column is the ratio of target and measurement.
"""

from __future__ import annotations

import random
import time

from rota.core.engine.engine import Engine
from rota.core.messages.decisions import Decision, Start, Stop
from rota.core.messages.events import End, Event, JobArrived, JobCancelled, JobEnded, PromisesChanged, Started, Stopped
from rota.core.model.cells import CellEntry, CellPlan, CellType, CellTypeName, Quota, TenantCells
from rota.core.model.job import WHOLE, Job, JobId, Role, TenantId
from rota.core.state.state import State
from rota.files.hived import cluster_from
from rota.placement import style
from rota.policies import find_policy
from rota.tenancy import allocator

ROWS, RACKS, NODES, DEVICES = 20, 25, 20, 8
TENANTS = 100
GANGS = 12_000
SHAPES = ((1, 1), (1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8), (8, 8))
"""Pods and devices per pod from which gangs are sampled."""


def plan(tenants: int = TENANTS) -> CellPlan:
    node, rack, row = CellTypeName("NODE"), CellTypeName("RACK"), CellTypeName("ROW")
    racks = ROWS * RACKS // tenants
    return CellPlan(
        types={
            node: CellType(child=CellTypeName("GPU"), children=DEVICES, is_node=True),
            rack: CellType(child=node, children=NODES),
            row: CellType(child=rack, children=RACKS),
        },
        physical=tuple(
            CellEntry(
                type=row,
                children=tuple(
                    CellEntry(children=tuple(CellEntry(address=f"n{r}-{k}-{n}") for n in range(NODES)))
                    for k in range(RACKS)
                ),
            )
            for r in range(ROWS)
        ),
        tenants={
            TenantId(f"t{t}"): TenantCells(quotas=(Quota(chain=row, type=rack, cells=racks),)) for t in range(tenants)
        },
    )


def gang(rng: random.Random, number: int) -> Job:
    pods, devices = rng.choice(SHAPES)
    return Job(
        id=JobId(f"g{number}"),
        tenant=TenantId(f"t{rng.randrange(TENANTS)}"),
        priority=rng.choice((-1, 0, 1, 1, 2)),
        roles=(Role(count=pods, device_milli=devices * WHOLE),),
        work=1e6,
    )


def started() -> Engine:
    """Return an engine with the cells of the large cluster."""
    cluster = cluster_from(plan())
    declared, options = find_policy("fifo:backfill=true")
    alloc = allocator("cells", style("any"), cluster)
    return Engine(State(cluster), declared.build(options, alloc), alloc)


def fill(engine: Engine, rng: random.Random) -> int:
    """Let gangs arrive and end. Return how many were placed."""
    running: dict[JobId, None] = {}
    placed = 0
    for number in range(GANGS):
        job = gang(rng, number)
        touched = {job.id: None}
        for decision in settle(engine, [JobArrived(job)]):
            if isinstance(decision, Stop):
                running.pop(decision.job_id, None)
                touched[decision.job_id] = None
            elif isinstance(decision, Start):
                running[decision.job_id] = None
                placed += 1
        waiting = [each for each in touched if engine.state.live(each).is_contending]
        settle(engine, [JobCancelled(each) for each in waiting])
        for each in waiting:
            engine.state.forget(each)
        if number > GANGS // 2 and running:
            leaver = next(iter(running))
            del running[leaver]
            settle(engine, [JobEnded(leaver, End.SUCCEEDED, 0.0)])
            engine.state.forget(leaver)
    return placed


def settle(engine: Engine, events: list[Event]) -> list[Decision]:
    """Run a step and confirm its decisions at once. Return the decisions."""
    ordered: list[Decision] = []
    while events:
        decisions = engine.step(engine.state.now_s, events)
        ordered += decisions
        events = [
            Started(each.job_id, 1.0, 0.0) if isinstance(each, Start) else Stopped(each.job_id, 0.0)
            for each in decisions
        ]
    return ordered


def main() -> None:
    began = time.process_time()
    engine = started()
    start_s = time.process_time() - began
    began = time.process_time()
    placed = fill(engine, random.Random(1))
    fill_s = time.process_time() - began
    jobs = sum(not live.state.is_final for live in engine.state.jobs.values())
    began = time.process_time()
    engine.step(1.0, [PromisesChanged(plan(TENANTS // 2))])
    change_s = time.process_time() - began
    print(f"devices {ROWS * RACKS * NODES * DEVICES}, tenants {TENANTS}, gangs requested {GANGS}, placed {placed}")
    print(f"{'start':32}{start_s:10.2f} s   {5 / start_s:6.1f}x")
    print(f"{'gang placements':32}{placed / fill_s:10.0f} /s  {placed / fill_s / 1000:6.1f}x")
    print(f"{f'new guarantees, {jobs} jobs':32}{change_s:10.2f} s   {5 / change_s:6.1f}x")


if __name__ == "__main__":
    main()
