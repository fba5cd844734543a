"""Claims about communication: Cassini, Crux, Prophet, P3 and ByteScheduler, Prague, EFLOPS, Liquid with links.

Cassini and Crux: jobs of known models on generated placements, phase by phase. Gradients: layers of published
architectures. Prague: real small trainings in simulated time. EFLOPS: flows counted link by link. Intervals are 95% by
Student's t over seeds.
Run: `python reproductions/network.py [SEEDS]`.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import DeviceType, Job, JobId, NodeId, Role
from rota.drivers.simulator.study import Setting, simulate
from rota.files.network.network_file import network_from_spec
from rota.network.collectives import CollectiveKind
from rota.network.crux import compressed, intensity, least_congested
from rota.network.demand import MODELS, IterationDemand
from rota.network.fabrics import GBIT, bigraph, fat_tree
from rota.network.gradients import GradientLink, GradientSchedule, scheduled
from rota.network.layer_profiles import ARCHITECTURES, profile_of
from rota.network.model import LinkMechanism, NetworkModel
from rota.network.phases import PhasedJob, run_phases
from rota.network.rank_order import alternating_order, link_flows, near_order
from rota.network.routing import Path, Router
from rota.network.sync_schemes import SoftmaxTask, SyncScheme, SyncSetting, train
from rota.network.traffic import JobTraffic, RankPlace, traffic_of, traffic_on
from rota.network.turns import most_compatible, phased, settled
from rota.traces.workload import Submission, Workload

QUANTILE = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 8: 2.36, 10: 2.26, 12: 2.20}
CANDIDATES = 10
MIXES = 6
"""Sets of jobs for each seed."""
STEPS = 240
"""Steps of each training."""
NAMES = [name for name in MODELS if name not in ("dlrm", "bert")]


def interval(values: Sequence[float]) -> str:
    """A mean with its 95% interval."""
    half = QUANTILE.get(len(values), 2.0) * statistics.stdev(values) / math.sqrt(len(values))
    return f"{statistics.mean(values):.2f} ± {half:.2f}"


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    print(f"\n{title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")
    sys.stdout.flush()


def placements(rng: random.Random, sizes: Sequence[int], nodes: int) -> list[list[int]]:
    """Nodes for each job: all distinct, at random."""
    order = rng.sample(range(nodes), nodes)
    cuts, found = 0, []
    for size in sizes:
        found.append(sorted(order[cuts : cuts + size]))
        cuts += size
    return found


def cassini(seeds: int) -> None:
    """24 servers with 50 Gbit/s, two below each switch: random placements and starts, against the best of ten, shifted.

    Computing is two to five times as fast as on a V100.
    """
    nodes = [f"n{n}" for n in range(24)]
    topology = fat_tree(nodes, per_leaf=2, spines=1, link_bytes_per_s=50 * GBIT, oversubscription=2)
    model = NetworkModel(topology=topology, mechanism=LinkMechanism.CASSINI)
    router = Router(topology)
    average, tail, alone = [], [], []
    for seed in range(seeds):
        rng = random.Random(seed)
        before: list[float] = []
        after: list[float] = []
        ideal: list[float] = []
        for _ in range(MIXES):
            sizes = [rng.choice((2, 3, 4)) for _ in range(6)]
            demands = [replace(MODELS[rng.choice(NAMES)], overlap=0.0) for _ in sizes]
            demands = [replace(d, compute_s=d.compute_s * rng.uniform(0.2, 0.6)) for d in demands]
            tried = []
            for _ in range(CANDIDATES):
                places = placements(rng, sizes, 24)
                traffics = [
                    traffic_of(demand, [RankPlace(node=n) for n in some], model, router, number)
                    for number, (demand, some) in enumerate(zip(demands, places, strict=True))
                ]
                tried.append(traffics)
            plain = phased(tried[0], replace(model, mechanism=LinkMechanism.FAIR))
            started = [replace(job, shift_s=rng.uniform(0, job.alone_s)) for job in plain]
            before += run_phases(started, topology.capacity, iterations=15).iteration_s
            best = tried[most_compatible(tried, model)]
            after += settled(best, model)
            ideal += [job.alone_s for job in plain]
        average.append(statistics.mean(before) / statistics.mean(after))
        tail.append(float(np.quantile(before, 0.99) / np.quantile(after, 0.99)))
        alone.append(statistics.mean(before) / statistics.mean(ideal))
    rows = [
        ("average iteration, Themis without over with Cassini", "1.6", interval(average)),
        ("99th percentile of iterations", "2.5", interval(tail)),
        ("the most that is to gain: contended over alone", "", interval(alone)),
    ]
    table("Cassini", ("24 servers, 50 Gbit/s", "published", "Rota"), rows)


PLACED = ("consolidate", "links", "cassini")
TOPOLOGIES: tuple[dict[str, object], ...] = (
    {"topology": "fat-tree", "per_leaf": 4, "spines": 2, "oversubscription": 4},
    {"topology": "rail-optimised", "rails": 4, "per_leaf": 4},
    {"topology": "bigraph", "switches": 4},
    {"topology": "torus", "shape": [4, 2, 2]},
)


def cassini_placement(seeds: int) -> None:
    """Jobs that come and go under FIFO with each placement: the 24 servers as above, and 64 GPUs elsewhere."""
    rows = []
    for between in ("fair", "cassini"):
        found = [placed_servers(between, seed) for seed in range(seeds)]
        rows.append((f"24 servers, {between}", *(interval([each[name] for each in found]) for name in PLACED)))
    for links in TOPOLOGIES:
        found = [placed_gpus(links, seed) for seed in range(seeds)]
        rows.append((str(links["topology"]), *(interval([each[name] for each in found]) for name in PLACED)))
    table("Placement by Cassini's score", ("mean slowdown by links", *PLACED), rows)


def placed_servers(between: str, seed: int) -> dict[str, float]:
    """Mean slowdowns on 24 servers of one GPU."""
    links = {"topology": "fat-tree", "per_leaf": 2, "spines": 1, "oversubscription": 2, "link": "50Gbps"}
    made = _talkative_jobs(np.random.default_rng(seed), 60, 24, (2, 3, 4))
    return _slowdowns(made, Cluster.uniform(("gpu", 24, 1)), {**links, "between": between})


def placed_gpus(links: dict[str, object], seed: int) -> dict[str, float]:
    """Mean slowdowns on 16 nodes of four GPUs, with fair sharing."""
    made = _talkative_jobs(np.random.default_rng(seed), 120, 64, (1, 2, 4, 8, 16))
    return _slowdowns(made, Cluster.uniform(("gpu", 64, 4)), {**links, "link": "25Gbps"})


def _slowdowns(made: Workload, cluster: Cluster, links: dict[str, object]) -> dict[str, float]:
    spec = json.dumps(links)
    setting = Setting(cluster=cluster, network=network_from_spec(spec, [str(node.id) for node in cluster.nodes]))
    found = {}
    for name in PLACED:
        placement = name if name == "consolidate" else f"{name}:{spec}"
        history = simulate(made, "fifo:backfill=true", replace(setting, placement=placement)).history
        took = [(row.end_s or 0.0) - (row.start_s or 0.0) for row in history.jobs]
        each = [s / one.job.work for s, one in zip(took, made.submissions, strict=True) if one.job.work]
        found[name] = statistics.mean(each)
    return found


def _talkative_jobs(rng: np.random.Generator, count: int, devices: int, kinds: tuple[int, ...]) -> Workload:
    sizes, work = rng.choice(kinds, size=count), rng.exponential(1200.0, count) + 60.0
    submit = np.cumsum(rng.exponential(float((sizes * work).mean()) / (0.8 * devices), count))
    made = []
    for number in range(count):
        demand = MODELS[str(rng.choice(NAMES))]
        compute_s = demand.compute_s * rng.uniform(0.2, 0.6)
        labels = (("compute_s", f"{compute_s:.6f}"), ("comm_bytes", f"{demand.bytes:.0f}"), ("overlap", "0"))
        roles = (Role(count=int(sizes[number])),)
        job = Job(id=JobId(f"j{number}"), roles=roles, work=float(work[number]), labels=labels)
        made.append(Submission(job=job, submit_s=float(submit[number])))
    return Workload(submissions=tuple(made), source="generated", format="generated")


def crux(seeds: int) -> None:
    """96 GPUs on 12 nodes: ECMP and fair sharing against paths and priorities by intensity; utilisation of GPUs.

    Computing is two to ten times as fast as on a V100.
    """
    nodes = [f"n{n}" for n in range(12)]
    topology = fat_tree(nodes, per_leaf=2, spines=2, link_bytes_per_s=100 * GBIT, oversubscription=2)
    model = NetworkModel(topology=topology, mechanism=LinkMechanism.CRUX)
    gains = []
    for seed in range(seeds):
        rng = random.Random(100 + seed)
        used: dict[str, list[float]] = {"fair": [], "crux": []}
        for _ in range(MIXES):
            sizes = [rng.choice((2, 3, 4)) for _ in range(6)]
            demands = [MODELS[rng.choice(NAMES)] for _ in sizes]
            demands = [replace(d, compute_s=d.compute_s * rng.uniform(0.1, 0.4)) for d in demands]
            places = [rng.sample(range(12), size) for size in sizes]
            ranks = [[RankPlace(node=n, device=d) for n in some for d in range(2)] for some in places]
            shifts = [rng.random() for _ in sizes]
            for name in used:
                jobs, traffics = crux_jobs(name, demands, ranks, model, seed)
                started = [replace(j, shift_s=s * j.alone_s) for j, s in zip(jobs, shifts, strict=True)]
                found = run_phases(started, topology.capacity, iterations=12)
                work = [t.demand.compute_s * t.devices / s for t, s in zip(traffics, found.iteration_s, strict=True)]
                used[name].append(sum(work) / sum(t.devices for t in traffics))
        gains.append(100 * (statistics.mean(used["crux"]) / statistics.mean(used["fair"]) - 1))
    rows = [("utilisation of GPUs, testbed and simulation", "+8.3 to +23%", f"+{interval(gains)}%")]
    table("Crux", ("96 GPUs", "published", "Rota"), rows)


def crux_jobs(
    name: str, demands: Sequence[IterationDemand], ranks: Sequence[list[RankPlace]], model: NetworkModel, seed: int
) -> tuple[list[PhasedJob], list[JobTraffic]]:
    """Jobs with the paths and priorities of a mechanism."""
    router = Router(model.topology, seed=seed)
    if name == "fair":
        traffics = [traffic_of(d, r, model, router, n) for n, (d, r) in enumerate(zip(demands, ranks, strict=True))]
        return phased(traffics, replace(model, mechanism=LinkMechanism.FAIR)), traffics
    first = [traffic_of(d, r, model, router, 0) for d, r in zip(demands, ranks, strict=True)]
    order = sorted(range(len(first)), key=lambda n: -intensity(first[n]))
    load: dict[int, float] = {}
    found: dict[int, JobTraffic] = {}
    for number in order:

        def path(source: int, target: int) -> Path:
            return least_congested(router, source, target, load, model.topology.capacity)

        found[number] = traffic_on(demands[number], ranks[number], model, path)
        for link, amount in found[number].loads.items():
            load[link] = load.get(link, 0.0) + amount * found[number].unit_bytes
    traffics = [found[number] for number in range(len(first))]
    priorities = compressed([intensity(traffic) for traffic in traffics], model.priority_levels)
    jobs = phased(traffics, replace(model, mechanism=LinkMechanism.FAIR))
    return [replace(job, priority=rank) for job, rank in zip(jobs, priorities, strict=True)], traffics


def gradients() -> None:
    """Speed relative to FIFO at bandwidths from a quarter to four times the balanced one; overheads of 0.2 to 1 ms."""
    published = {"resnet50": "1.25 (P3)", "vgg19": "1.66 (P3)", "sockeye": "1.38 (P3)"}
    rows = []
    for model in ARCHITECTURES:
        layers = profile_of(model)
        balanced = sum(layer.size for layer in layers) / ARCHITECTURES[model][1]
        best: dict[GradientSchedule, list[float]] = {kind: [] for kind in GradientSchedule}
        for times in (0.25, 0.5, 1.0, 1.5, 2.0, 4.0):
            for message_s in (2e-4, 5e-4, 1e-3):
                link = GradientLink(bytes_per_s=times * balanced, message_s=message_s)
                found = {kind: scheduled(kind, layers, link).iteration_s for kind in GradientSchedule}
                for kind in GradientSchedule:
                    best[kind].append(found[GradientSchedule.FIFO] / found[kind])
        shown = [
            f"{statistics.mean(best[kind]):.2f}, at most {max(best[kind]):.2f}"
            for kind in (GradientSchedule.P3, GradientSchedule.BYTESCHEDULER, GradientSchedule.PROPHET)
        ]
        rows.append((model, published.get(model, ""), *shown))
    table("Gradients", ("speed over FIFO", "published, at most", "P3", "ByteScheduler, tuned", "Prophet"), rows)


def prague(seeds: int) -> None:
    """Eight workers: time to a loss relative to all-reduce, equal and with one that is five times as slow."""
    rows = []
    schemes = [scheme for scheme in SyncScheme if scheme is not SyncScheme.ALL_REDUCE]
    gains: dict[tuple[SyncScheme, float], list[float]] = {}
    ends: dict[SyncScheme, list[float]] = {}
    for seed in range(seeds):
        task = SoftmaxTask.make(seed)
        for slow in (1.0, 5.0):
            setting = SyncSetting(compute_s=(slow * 0.1, *(0.1,) * 7), transfer_s=0.03, jitter=0.2, seed=seed)
            reduced = train(SyncScheme.ALL_REDUCE, task, setting, STEPS)
            goal = min(value for _, value in reduced.losses) * 1.05
            for scheme in schemes:
                found = train(scheme, task, setting, STEPS)
                gains.setdefault((scheme, slow), []).append(reduced.reached_s(goal) / found.reached_s(goal))
                if slow > 1:
                    ends.setdefault(scheme, []).append(found.losses[-1][1] / reduced.losses[-1][1])
    published = {SyncScheme.PRAGUE: ("1.2", "4.4"), SyncScheme.AD_PSGD: ("1.2 / 3.7 = 0.32", "")}
    for scheme in schemes:
        first, second = published.get(scheme, ("", ""))
        rows.append(
            (
                scheme.value,
                first,
                interval(gains[scheme, 1.0]),
                second,
                interval(gains[scheme, 5.0]),
                interval(ends[scheme]),
            )
        )
    head = (
        "speed to a loss over all-reduce",
        "published, equal",
        "equal",
        "published, one slow",
        "one slow",
        "final loss",
    )
    table("Prague and Ko", head, rows)


def eflops() -> None:
    """Flows on the busiest link of each exchange, relative to one node's rate, and the time of the whole exchange."""
    rows = []
    for switches, per_switch in ((2, 4), (4, 4), (8, 8), (8, 4)):
        nodes = [f"n{n}" for n in range(2 * switches * per_switch)]
        topology = bigraph(nodes, switches=switches, link_bytes_per_s=1e9)
        router = Router(topology, seed=1)
        ranks = [RankPlace(node=n) for n in range(len(nodes))]
        random.Random(1).shuffle(ranks)

        def path(one: int, other: int, router: Router = router) -> Path:
            return router.route(one, other, 1)

        shown = []
        demand = IterationDemand(compute_s=0.0, bytes=1e9, collective=CollectiveKind.HALVING_DOUBLING)
        model = NetworkModel(topology=topology)
        for order in (list(range(len(ranks))), near_order(ranks, topology), alternating_order(ranks, topology)):
            placed = [ranks[rank] for rank in order]
            flows = link_flows(CollectiveKind.HALVING_DOUBLING, placed, topology, path)
            worst = max(count * 1e9 / float(topology.capacity[link]) for some in flows for link, count in some.items())
            shown.append(f"{worst:.1f}, {traffic_on(demand, placed, model, path).comm_s:.2f} s")
        rows.append((f"{len(nodes)} nodes, {2 * switches} switches", "1 flow on each link", *shown))
    table("EFLOPS", ("BiGraph", "published", "shuffled ranks", "by switch", "EFLOPS' mapping"), rows)


def liquid(seeds: int) -> None:
    """Liquid's placement against others, by distances alone and on the links of an oversubscribed fat tree."""
    racks, per_rack, devices = 4, 8, 4
    made = tuple(
        Node(id=NodeId(f"n{n}"), device_type=DeviceType("gpu"), devices=devices, rack=f"r{n // per_rack}", domain="d")
        for n in range(racks * per_rack)
    )
    cluster = Cluster(nodes=made)
    topology = fat_tree(
        [str(n.id) for n in made], per_leaf=per_rack, spines=2, link_bytes_per_s=25 * GBIT, oversubscription=4
    )
    network = NetworkModel(topology=topology)
    ratios: dict[str, list[float]] = {}
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        work = Workload(submissions=tuple(_jobs(rng, cluster.devices)), source="generated", format="generated")
        jct: dict[str, float] = {}
        for placement in ("liquid", "consolidate", "best-fit", "any", "spread"):
            setting = Setting(cluster=cluster, placement=placement, network=network)
            history = simulate(work, "fifo:backfill=true", setting).history
            jct[placement] = statistics.mean((row.end_s or 0.0) - row.submit_s for row in history.jobs)
        for placement, value in jct.items():
            ratios.setdefault(placement, []).append(value / jct["liquid"])
    rows = [(name, interval(values)) for name, values in ratios.items() if name != "liquid"]
    table("Liquid with links", ("mean completion time over that of liquid", "fat tree, oversubscription 4"), rows)


def _jobs(rng: np.random.Generator, devices: int) -> list[Submission]:
    count = 250
    sizes = rng.choice([1, 2, 4, 6, 8, 12, 16], size=count)
    work = rng.exponential(1200.0, count) + 30.0
    gap_s = float((sizes * work).mean()) / (0.8 * devices)
    submit = np.cumsum(rng.exponential(gap_s, count))
    names = rng.choice(NAMES, count)
    return [
        Submission(
            job=Job(
                id=JobId(f"j{n}"),
                roles=(Role(count=int(sizes[n])),),
                work=float(work[n]),
                labels=(("model", str(names[n])),),
            ),
            submit_s=float(submit[n]),
        )
        for n in range(count)
    ]


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    eflops()
    gradients()
    cassini(seeds)
    cassini_placement(seeds)
    crux(seeds)
    prague(seeds)
    liquid(seeds)


if __name__ == "__main__":
    main()
