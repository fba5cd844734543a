"""How fast cells are on a large cluster: 10,000 nodes, 80,000 devices, 4 levels, 100 tenants.

Processor time of one process on one core: to build all cells; gang placements per second (a plan and its
commit, from an empty cluster to a full one and then with a gang released for each that comes, victims of
preemption included); and the time to take over all running gangs under new promises. Then the same cluster under an
engine: its start, and one step in which the promises to tenants change while jobs run. The promises to beat are 1,000
placements a second and 5 s; the last column is how many times better the measurement is.
"""

from __future__ import annotations

import random
import time

from rota.core.engine.engine import Engine
from rota.core.messages.events import Event, JobArrived, PromisesChanged, Started
from rota.core.model.cells import CellEntry, CellPlan, CellType, CellTypeName, Quota, TenantCells
from rota.core.model.job import WHOLE, Job, JobId, Role, TenantId
from rota.core.state.state import State
from rota.files.hived import cluster_from
from rota.placement import style
from rota.policies import find_policy
from rota.tenancy import allocator
from rota.tenancy.cells.groups import Bind, Gangs, GroupId, Phase, PodId, PodSpec, Preempt

ROWS, RACKS, NODES, DEVICES = 20, 25, 20, 8
TENANTS = 100
GANGS = 12_000
JOBS = 4_000
"""Jobs that run in the engine when its promises change."""
SHAPES = ((1, 1), (1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8), (8, 8))
"""Pods and devices of each, as they are drawn."""


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


def draw(rng: random.Random, number: int) -> PodSpec:
    pods, devices = rng.choice(SHAPES)
    return PodSpec(
        tenant=TenantId(f"t{rng.randrange(TENANTS)}"),
        priority=rng.choice((-1, 0, 1, 1, 2)),
        devices=devices,
        group=GroupId(f"g{number}"),
        members=((pods, devices),),
    )


def fill(gangs: Gangs, rng: random.Random) -> tuple[int, int, dict[PodId, tuple[PodSpec, Bind]]]:
    """Place gangs; how many were placed, how many were asked for, and who is there in the end."""
    running: dict[PodId, tuple[PodSpec, Bind]] = {}
    placed = 0
    for number in range(GANGS):
        pod, spec = PodId(f"p{number}"), draw(rng, number)
        answer = gangs.schedule(pod, spec, Phase.PREEMPTING)
        if isinstance(answer, Preempt):
            for victim in answer.victims:
                gangs.delete(victim, running.pop(victim)[0])
            answer = gangs.schedule(pod, spec, Phase.PREEMPTING)
        if isinstance(answer, Bind):
            gangs.commit(pod, spec, answer)
            running[pod] = (spec, answer)
            placed += 1
        if number > GANGS // 2 and running:
            leaver = next(iter(running))
            gangs.delete(leaver, running.pop(leaver)[0])
    return placed, GANGS, running


def main() -> None:
    began = time.process_time()
    gangs = Gangs(plan())
    startup_s = time.process_time() - began
    began = time.process_time()
    placed, asked, running = fill(gangs, random.Random(1))
    fill_s = time.process_time() - began
    began = time.process_time()
    successor = Gangs(plan(TENANTS // 2))
    for pod, (spec, bind) in running.items():
        successor.recover(pod, spec, bind)
    reconfiguration_s = time.process_time() - began
    print(f"devices {ROWS * RACKS * NODES * DEVICES}, tenants {TENANTS}, gangs asked {asked}, placed {placed}")
    print(f"{'startup':32}{startup_s:10.2f} s   {5 / startup_s:6.1f}x")
    print(f"{'gang placements':32}{placed / fill_s:10.0f} /s  {placed / fill_s / 1000:6.1f}x")
    print(f"{f'reconfiguration, {len(running)} gangs':32}{reconfiguration_s:10.2f} s   {5 / reconfiguration_s:6.1f}x")
    del gangs, successor
    start_s, change_s, jobs = change_in_the_engine()
    print(f"{'engine, startup':32}{start_s:10.2f} s   {5 / start_s:6.1f}x")
    print(f"{f'engine, new promises, {jobs} jobs':32}{change_s:10.2f} s   {5 / change_s:6.1f}x")


def change_in_the_engine() -> tuple[float, float, int]:
    """The same cluster under an engine: the time to start it, and to take new promises while jobs run."""
    cluster = cluster_from(plan())
    declared, options = find_policy("fifo:backfill=true")
    began = time.process_time()
    alloc = allocator("cells", style("any"), cluster)
    engine = Engine(State(cluster), declared.build(options, alloc), alloc)
    start_s = time.process_time() - began
    rng = random.Random(1)
    arrivals: list[Event] = []
    for number in range(JOBS):
        pods, devices = rng.choice(SHAPES)
        role = Role(count=pods, device_milli=devices * WHOLE)
        tenant = TenantId(f"t{rng.randrange(TENANTS)}")
        arrivals.append(JobArrived(Job(id=JobId(f"j{number}"), roles=(role,), tenant=tenant, work=1e6)))
    orders = engine.step(0.0, arrivals)
    engine.step(0.0, [Started(order.job_id, 1.0, 0.0) for order in orders])
    began = time.process_time()
    engine.step(1.0, [PromisesChanged(plan(TENANTS // 2))])
    return start_s, time.process_time() - began, len(orders)


if __name__ == "__main__":
    main()
