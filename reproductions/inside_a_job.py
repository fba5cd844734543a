"""Plans inside one job: what the papers on single settings claim, measured on public graphs and in the simulator.

Spotlight (learned placement), CC-OS (threads on a CPU), PICO (edge devices), HERTI (energy under a deadline), Li et al.
(swapping, later Harmony) and Abacus (overlap under a latency bound).
Run: `ROTA_DATA=... python reproductions/inside_a_job.py`; Spotlight's row needs PyTorch.
"""

from __future__ import annotations

import os
import random
import statistics
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from rota.planner.description.devices import DeviceGraph, DeviceLink, GraphDevice, fully_connected
from rota.planner.description.operators import GraphOperator, OperatorGraph
from rota.planner.description.problem import PlanningProblem
from rota.planner.description.read import read_problem
from rota.planner.edge.cut import ChainCut, all_cuts, least_energy
from rota.planner.edge.pico import plan_pico
from rota.planner.options import PlannerOptions
from rota.planner.pipelines.chain import layer_chain
from rota.planner.server.overlap import OverlapQuery, OverlapScheduler
from rota.planner.server.swap import all_swap_plans
from rota.planner.server.threads import co_run

DATA = Path(os.environ["ROTA_DATA"]) / "planner"
GB = 1e9
PCIE_BYTES_PER_MS = 12e6
IMAGE_BYTES = 3 * 224 * 224 * 4
LINK_BYTES_PER_MS = 5e3
"""A radio link of 40 Mb/s."""
CORES = 68
"""Of the Xeon Phi on which CC-OS was measured."""


def heading(*cells: str) -> None:
    print(f"\n| {' | '.join(cells)} |\n|---|{'---:|' * (len(cells) - 1)}", flush=True)


def row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def swapping() -> None:
    """Li et al.: a model that is larger than its device, by tasks in groups against one micro-batch at a time."""
    heading("profile, micro-batches", "device, GB", "one by one, GB", "in groups, GB", "times less", "times faster")
    for name, parts in (("bert-48-pbs-2", 2), ("bert-48-pbs-2", 8), ("xlnet-36-pbs-1", 8)):
        problem = read_problem(DATA / "dapple" / f"{name}.txt", fully_connected("gpu", 1))
        chain, _ = layer_chain(problem).merged(30)
        device_bytes = 4 * float(chain.weight_bytes[-1]) / parts
        for batches in (8, 32):
            plans = all_swap_plans(chain, device_bytes, batches, PCIE_BYTES_PER_MS)
            plain = next(plan for plan in plans if plan.group == 1 and not plan.early_update)
            best = min(plans, key=lambda plan: plan.step_ms)
            moved = [(plan.in_bytes + plan.out_bytes) / GB for plan in (plain, best)]
            cells = (f"{device_bytes / GB:.2f}", f"{moved[0]:.1f}", f"{moved[1]:.1f}")
            row(f"{name}, {batches}", *cells, f"{moved[0] / moved[1]:.1f}", f"{plain.step_ms / best.step_ms:.2f}")


def threads() -> None:
    """CC-OS: operators whose speed-up saturates at different numbers of threads, alone one by one or beside others."""
    heading("branches of the graph", "all cores one by one, ms", "threads and co-running, ms", "shorter by")
    counts = (1, 2, 4, 8, 16, 34, 68)
    shorter = []
    for width in (1, 2, 4, 8):
        rng = random.Random(width)
        operators, edges = [], []
        for layer in range(30):
            for branch in range(width):
                serial, work, per_thread = rng.uniform(0.01, 0.1), rng.uniform(1.0, 30.0), rng.uniform(0.001, 0.02)
                times = {f"cpu@{count}": serial + work / count + per_thread * count for count in counts}
                operators.append(GraphOperator(name=f"o{layer}.{branch}", time_ms=times))
                if layer:
                    edges.append(((layer - 1) * width + branch, layer * width + branch))
        graph = OperatorGraph(operators=tuple(operators), edges=tuple(edges))
        tables = [{int(name[4:]): ms for name, ms in each.time_ms.items()} for each in operators]
        alone = sum(table[CORES] for table in tables)
        best = min(co_run(graph, tables, CORES, cap).step_ms for cap in counts)
        shorter.append(1 - best / alone)
        row(width, f"{alone:.1f}", f"{best:.1f}", f"{1 - best / alone:.0%}")
    row("mean", "", "", f"{statistics.mean(shorter):.0%}")


def edge_pipelines() -> None:
    """PICO: throughput of a pipeline over equal and unequal devices, against the fastest device alone."""
    heading("graph", "2 devices", "4 devices", "8 devices", "8, half of them of half the speed")
    for name in ("layer-resnet50", "layer-inceptionv3"):
        source = read_problem(DATA / "graphs" / f"{name}_inference.json")
        cells = []
        for count, slow in ((2, 0), (4, 0), (8, 0), (8, 4)):
            operators = tuple(
                replace(
                    each,
                    time_ms={"pi": (ms := min(each.time_ms.values())), "old-pi": 2 * ms},
                    transfer_ms=(each.transfer_ms or 0.0) * 0.05,
                    colocation=None,
                )
                for each in source.graph.operators
            )
            devices = [GraphDevice(name=f"pi-{at}", type="pi") for at in range(count - slow)]
            devices += [GraphDevice(name=f"old-{at}", type="old-pi") for at in range(slow)]
            problem = PlanningProblem(
                graph=OperatorGraph(operators=operators, edges=source.graph.edges),
                devices=DeviceGraph(devices=tuple(devices), links=()),
            )
            alone = sum(each.time_ms["pi"] for each in operators)
            cells.append(f"{alone / plan_pico(problem, PlannerOptions()).value_ms:.2f}")
        row(name, *cells)


def energy() -> None:
    """HERTI: least energy under a deadline over cuts and frequencies, against the device alone and the cloud alone."""
    heading("deadline over the fastest", "least energy, mJ", "device alone", "cloud alone", "top speed only")
    chain = read_problem(DATA / "dapple" / "vgg-19-pbs-32.txt", fully_connected("gpu", 1)).graph
    # One of the 32 samples of the profile, forward only; the phone takes 60 times as long as the server.
    server = [each.time_ms["gpu"] * (1 - each.backward_share) / 32 for each in chain.operators]
    operators = tuple(
        replace(
            each,
            time_ms={"phone": 60 * ms, "server": ms},
            output_bytes=each.output_bytes // 32 if at else IMAGE_BYTES,
            weight_bytes=0,
        )
        for at, (each, ms) in enumerate(zip(chain.operators, server, strict=True))
    )
    levels = ((0.4, 0.8), (0.6, 1.6), (0.8, 2.9), (1.0, 4.8))
    devices = DeviceGraph(
        devices=(
            GraphDevice(name="phone", type="phone", levels=levels, sending_watts=1.2),
            GraphDevice(name="server", type="server"),
        ),
        links=(DeviceLink(source="phone", target="server", bytes_per_ms=LINK_BYTES_PER_MS),),
    )
    graph = OperatorGraph(operators=operators, edges=chain.edges)
    cuts = all_cuts(PlanningProblem(graph=graph, devices=devices))
    fastest = min(cut.latency_ms for cut in cuts)
    count = len(operators)

    def least(chosen: list[ChainCut], deadline_ms: float) -> str:
        timely = [cut for cut in chosen if cut.latency_ms <= deadline_ms]
        return f"{min(cut.energy_mj for cut in timely):.0f}" if timely else "too late"

    for factor in (1.0, 1.1, 1.5, 2.0, 4.0):
        deadline_ms = factor * fastest
        local = [cut for cut in cuts if cut.ends[0] == count]
        remote = [cut for cut in cuts if cut.ends[0] == 0]
        top = [cut for cut in cuts if cut.level == len(levels) - 1]
        best = least_energy(cuts, deadline_ms)
        others = (least(chosen, deadline_ms) for chosen in (local, remote, top))
        row(f"{factor:.1f}", f"{best.energy_mj:.0f}", *others)


def overlap() -> None:
    """Abacus: random sets of queries under a bound, overlapped or one after the other by deadline."""
    heading("occupancy", "gain in throughput", "late one by one", "late overlapped", "fewer late by")
    for low, high in ((0.2, 0.5), (0.4, 0.8), (0.7, 1.0)):
        rng = random.Random(1)
        gains, late = [], [0, 0]
        for _ in range(300):
            queries = []
            for _ in range(rng.randrange(2, 7)):
                times = [rng.lognormvariate(0, 0.7) for _ in range(rng.randrange(5, 40))]
                operators = [(at, ms, rng.uniform(low, high)) for at, ms in enumerate(times)]
                queries.append(OverlapQuery(operators=operators, deadline_ms=sum(times) * rng.uniform(1.2, 4.0)))
            alone_ms = 0.0
            for query in sorted(queries, key=lambda each: each.deadline_ms):
                alone_ms += query.left_ms()
                late[0] += alone_ms > query.deadline_ms
            found = OverlapScheduler(queries).run()
            late[1] += sum(done > query.deadline_ms for done, query in zip(found.done_ms, queries, strict=True))
            gains.append(alone_ms / found.step_ms)
        row(f"{low} to {high}", f"{statistics.mean(gains) - 1:+.1%}", late[0], late[1], f"{1 - late[1] / late[0]:.0%}")


def learned() -> None:
    """Spotlight: latency found by clipped updates with several passes, against plain policy gradients."""
    heading("graph", "policy gradient, ms", "`spotlight`, ms", "ratio", "`pesto`'s starting points and program, ms")
    from rota.planner.learned import spotlight
    from rota.planner.methods.pesto import plan_pesto

    ratios = []
    for name in ("layer-bert24", "layer-gnmt", "layer-resnet50"):
        problem = read_problem(DATA / "latency" / f"{name}_inference.json")
        values = []
        for passes in (1, 4):
            spotlight.PASSES = passes
            values.append(spotlight.plan_spotlight(problem, PlannerOptions(seed=1)).value_ms)
        ratios.append(values[1] / values[0])
        best = plan_pesto(problem, PlannerOptions()).value_ms
        row(name, f"{values[0]:.1f}", f"{values[1]:.1f}", f"{ratios[-1]:.0%}", f"{best:.1f}")
    row("mean", "", "", f"{statistics.mean(ratios):.0%}", "")


if __name__ == "__main__":
    swapping()
    threads()
    edge_pipelines()
    energy()
    overlap()
    if find_spec("torch") is not None:
        learned()
