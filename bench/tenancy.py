"""How fast cells are on a large cluster: 10,000 nodes, 80,000 devices, 4 levels, 100 tenants.

Measured in one process on one core: the time to build all cells; gang placements per second (a plan and its
commit, from an empty cluster to a full one and then with a gang released for each that comes, victims of
pre-emption included); and the time to take over all running gangs under new promises. The promises to beat are
1,000 placements a second and 5 s; the last column is how many times better the measurement is.
"""

from __future__ import annotations

import random
import time

from rota.core.cells import CellEntry, CellPlan, CellType, CellTypeName, Quota, TenantCells
from rota.core.model import TenantId
from rota.tenancy.cells.groups import Bind, Gangs, GroupId, Phase, PodId, PodSpec, Preempt

ROWS, RACKS, NODES, DEVICES = 20, 25, 20, 8
TENANTS = 100
GANGS = 12_000
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
    began = time.perf_counter()
    gangs = Gangs(plan())
    startup_s = time.perf_counter() - began
    began = time.perf_counter()
    placed, asked, running = fill(gangs, random.Random(1))
    fill_s = time.perf_counter() - began
    began = time.perf_counter()
    successor = Gangs(plan(TENANTS // 2))
    for pod, (spec, bind) in running.items():
        successor.recover(pod, spec, bind)
    reconfiguration_s = time.perf_counter() - began
    print(f"devices {ROWS * RACKS * NODES * DEVICES}, tenants {TENANTS}, gangs asked {asked}, placed {placed}")
    print(f"{'startup':32}{startup_s:10.2f} s   {5 / startup_s:6.1f}x")
    print(f"{'gang placements':32}{placed / fill_s:10.0f} /s  {placed / fill_s / 1000:6.1f}x")
    print(f"{f'reconfiguration, {len(running)} gangs':32}{reconfiguration_s:10.2f} s   {5 / reconfiguration_s:6.1f}x")


if __name__ == "__main__":
    main()
