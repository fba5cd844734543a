"""Plans inside a job: known optima, greedy latencies, DAPPLE's cuts and gains, Johnson's order.

Run: `ROTA_DATA=... python reproductions/planner.py`. Prints the tables of docs/reference/reproductions.md. CPU seconds
depend on the machine; nothing else does, except `pesto`, whose solver has a time limit.
"""

from __future__ import annotations

import itertools
import os
import random
from pathlib import Path

from rota.planner.description.devices import fully_connected
from rota.planner.description.read import read_problem
from rota.planner.edge.johnson import best_makespan_ms, makespan_ms
from rota.planner.methods.baechi import plan_baechi
from rota.planner.methods.max_load import plan_linear, plan_max_load
from rota.planner.methods.pesto import plan_pesto
from rota.planner.pipelines.dapple import best_dapple
from rota.planner.pipelines.pipedream import best_pipedream, pipeline_problem
from rota.planner.pipelines.stages import LayerStage, simulated_step
from rota.planner.simulate.latency import placement_latency_ms
from rota.planner.simulate.schedules import PipelineSchedule

DATA = Path(os.environ["ROTA_DATA"]) / "planner"
OPTIMA: dict[str, tuple[float | None, float | None]] = {
    "layer-bert24_inference": (None, 17.790),
    "layer-bert24_training": (41.746, 187.914),
    "layer-gnmt_inference": (32.911, 33.031),
    "layer-gnmt_training": (None, 294.905),
    "layer-resnet50_inference": (33.775, 39.398),
    "layer-resnet50_training": (78.632, 83.674),
    "layer-inceptionv3_inference": (None, 60.417),
    "layer-inceptionv3_training": (None, 128.317),
    "operator-bert_l-3_inference": (27.919, 37.456),
    "operator-bert_l-3_training": (65.303, 122.987),
    "operator-bert_l-6_inference": (29.580, 65.565),
    "operator-bert_l-6_training": (None, 192.917),
    "operator-bert_l-12_inference": (None, 642.78),
    "operator-bert_L-12_training": (None, None),
    "operator-resnet50_inference": (124.349, 129.155),
    "operator-resnet50_training": (None, 684.891),
}
GREEDY = {
    "layer-bert24": 100.219,
    "layer-gnmt": 268.5,
    "layer-inceptionv3": 2485.24,
    "layer-resnet50": 4197.06,
    "operator-bert_l-3": 416.204,
    "operator-bert_l-6": 494.135,
    "operator-bert_l-12": 867.839,
    "operator-resnet50": 839.536,
}
PROFILES = {
    "vgg-19-pbs-32": (64, 1),
    "gnmt-16-pbs-64": (16, 8),
    "bert-48-pbs-2": (32, 8),
    "xlnet-36-pbs-1": (128, 8),
    "amoeba-36-pbs-1": (128, 8),
}


def shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def optima() -> None:
    print(
        "| graph | published optimum | published PipeDream | `max-load` | proved | CPU s |\n|---|---|---|---|---|---|"
    )
    for name, (known, pipedream) in OPTIMA.items():
        plan = plan_max_load(read_problem(DATA / "graphs" / f"{name}.json"))
        proved = "yes" if plan.proved_optimal else "no"
        cells = f"{shown(known)} | {shown(pipedream)} | {plan.value_ms:.3f} | {proved} | {plan.seconds:.1f}"
        print(f"| {name} | {cells} |")


def latencies() -> None:
    """Pesto against Baechi, and against what an expert does: equal work for the accelerators, in order."""
    heading = ("graph", "published greedy", "equal work in order", "`baechi`", "`pesto`")
    print(f"\n| {' | '.join(heading)} | `pesto` against `baechi` | against equal work |")
    print(f"|{'---|' * (len(heading) + 2)}")
    for name, greedy in GREEDY.items():
        problem = read_problem(DATA / "latency" / f"{name}_inference.json")
        even = placement_latency_ms(problem, plan_linear(problem).stages)
        listed, solved = plan_baechi(problem).value_ms, plan_pesto(problem).value_ms
        times = " | ".join(f"{each:.3f}" for each in (greedy, even, listed, solved))
        print(f"| {name} | {times} | {solved / listed - 1:+.1%} | {solved / even - 1:+.1%} |")


def pipelines() -> None:
    print(
        "\n| profile, micro-batches, GPUs per node | replicas | stage times, ms | over PipeDream's plan | over GPipe |"
    )
    print("|---|---|---|---|---|")
    for name, (batches, per_node) in PROFILES.items():
        problem = read_problem(DATA / "dapple" / f"{name}.txt", fully_connected("gpu", 16, per_node=per_node))
        chain, fabric, devices = pipeline_problem(problem, planner="dapple")
        stages, step_ms = best_dapple(chain, fabric, devices, batches)
        small, places = chain.merged(120)
        other = best_pipedream(small, fabric, devices)
        assert other is not None
        plan = tuple(LayerStage(start=places[s.start], end=places[s.end], devices=s.devices) for s in other)
        other_ms = simulated_step(chain, fabric, plan, batches).step_ms
        gpipe = simulated_step(chain, fabric, stages, batches, PipelineSchedule.GPIPE, recompute=True)
        replicas = ":".join(str(len(stage.devices)) for stage in stages)
        times = " / ".join(f"{chain.stage_ms(stage.start, stage.end):.1f}" for stage in stages)
        gains = f"{other_ms / step_ms:.2f} | {gpipe.step_ms / step_ms:.2f}"
        print(f"| {name}, {batches}, {per_node} | {replicas} | {times} | {gains} |")


def johnson() -> None:
    rng, worse = random.Random(0), 0
    for _ in range(1000):
        jobs = [(rng.uniform(0, 9), rng.uniform(0, 9)) for _ in range(rng.randrange(2, 8))]
        tried = min(makespan_ms(jobs, order) for order in itertools.permutations(range(len(jobs))))
        worse += best_makespan_ms(jobs) > tried + 1e-9
    print("\n| random sets of 2 to 7 jobs | Johnson's order worse than brute force |\n|---|---|")
    print(f"| 1000 | {worse} |")


if __name__ == "__main__":
    optima()
    latencies()
    pipelines()
    johnson()
