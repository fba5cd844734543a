"""Plans for parallel training: predicted against published and measured iteration times, and planners' known results.

PTD-P's weak scaling (not used for fitting), vTrain's tables (fitted on random halves, and with whole models left out),
the predicted rank of the best measured plan, Alpa's published plans and Galvatron's asserted optima.
Run: `ROTA_DATA=... python reproductions/parallel.py [SEEDS]`.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
from collections.abc import Callable
from itertools import accumulate, pairwise
from pathlib import Path

from rota.planner.parallel.accuracy import mean_absolute, ranked_cases, relative_errors
from rota.planner.parallel.catalogue import MODELS
from rota.planner.parallel.fitting import MeasuredIteration, fitted, unfitted
from rota.planner.parallel.hardware import Accelerator, accelerator
from rota.planner.parallel.layerwise.planner import plan_layerwise
from rota.planner.parallel.layerwise.published import OPTIMA, published_task
from rota.planner.parallel.measured import read_iterations
from rota.planner.parallel.plans import Recompute, TrainingSetup
from rota.planner.parallel.search import PlanConstraints, by_search, usual_recompute
from rota.planner.parallel.staged import StagedTask, costed_stages, group_bounds, plan_staged
from rota.planner.parallel.transformer import TransformerShape

A100 = accelerator("a100")
# Narayanan et al., SC 2021, table 1: tensor, pipeline, GPUs, TFLOP/s per GPU.
PTD_P = {
    "gpt-1.7b": (1, 1, 32, 137),
    "gpt-3.6b": (2, 1, 64, 138),
    "gpt-7.5b": (4, 1, 128, 142),
    "gpt-18b": (8, 1, 256, 135),
    "gpt-39b": (8, 2, 512, 138),
    "gpt-76b": (8, 4, 1024, 140),
    "gpt-145b": (8, 8, 1536, 148),
    "gpt-310b": (8, 16, 1920, 155),
    "gpt-530b": (8, 35, 2520, 163),
    "gpt-1t": (8, 64, 3072, 163),
}
# alpa-projects/alpa, benchmark/alpa/suite_auto_gpt.py: hidden, layers, heads, GPUs, micro-batches, groups of layers,
# and the published stages as (groups, GPUs, data, tensor).
ALPA = {
    "760M": (1536, 24, 16, 2, 128, 6, ((3, 1, 1, 1), (3, 1, 1, 1))),
    "1.3B": (2048, 24, 32, 4, 128, 6, ((3, 2, 2, 1), (3, 2, 2, 1))),
    "2.6B": (2560, 32, 32, 8, 128, 8, ((2, 2, 2, 1), (2, 2, 2, 1), (4, 4, 4, 1))),
    "6.7B": (4096, 32, 32, 16, 64, 8, ((4, 8, 2, 4), (4, 8, 2, 4))),
    "15B": (5120, 48, 40, 32, 128, 16, ((4, 8, 2, 4),) * 4),
    "39B": (8192, 48, 64, 64, 1024, 16, ((1, 4, 1, 4),) * 16),
}


def row(*cells: object) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def heading(*cells: str) -> None:
    print()
    row(*cells)
    row(*["---"] * len(cells))


def measured() -> tuple[list[MeasuredIteration], list[MeasuredIteration]]:
    """Return vTrain's rows on one node and on several, with the usual recomputation for each model."""
    folder = Path(os.environ["ROTA_DATA"]) / "planner" / "vtrain"
    single = read_iterations(folder / "measured_single_node.csv", Recompute.NONE)
    multi = read_iterations(folder / "measured_multi_node.csv", Recompute.FULL)
    for each in (*single, *multi):
        assert usual_recompute(A100, each.setup.shape) is each.plan.recompute
    return single, multi


def ptd_p() -> None:
    heading("model", "GPUs", "tensor, pipeline, data", "published s", "Rota s", "error", "micro-batch, chunks chosen")
    for name, (tensor, pipeline, gpus, tflops) in PTD_P.items():
        model = MODELS[name]
        published_s = model.shape.step_flops(model.batch, recompute=True) / gpus / tflops / 1e12
        setup = TrainingSetup(shape=model.shape, batch=model.batch, gpus=gpus, per_node=8)
        data = gpus // tensor // pipeline
        best = by_search(A100, setup, PlanConstraints(tensor=tensor, pipeline=pipeline, data=data))[0]
        error = best.cost.iteration_s / published_s - 1
        chosen = f"{best.plan.micro_batch}, {best.plan.interleave}"
        degrees = f"{tensor}, {pipeline}, {data}"
        row(f"`{name}`", gpus, degrees, f"{published_s:.2f}", f"{best.cost.iteration_s:.2f}", f"{error:+.1%}", chosen)


def halves(single: list[MeasuredIteration], multi: list[MeasuredIteration], seeds: int) -> list[Accelerator]:
    """Print the errors on the held-out halves, and return the devices of all fits."""
    errors: dict[str, list[float]] = {"one node": [], "several nodes": []}
    fits = []
    for seed in range(seeds):
        drawn = random.Random(seed)
        seen, unseen = [], {}
        for name, rows in (("one node", list(single)), ("several nodes", list(multi))):
            drawn.shuffle(rows)
            seen += rows[: len(rows) // 2]
            unseen[name] = rows[len(rows) // 2 :]
        fits.append(fitted(A100, seen))
        for name, rows in unseen.items():
            errors[name].append(mean_absolute(relative_errors(fits[-1], rows)))
    shipped = {"one node": relative_errors(A100, single), "several nodes": relative_errors(A100, multi)}
    constant = {"one node": constant_utilisation(single), "several nodes": constant_utilisation(multi)}
    prior = unfitted(A100)
    before = {"one node": relative_errors(prior, single), "several nodes": relative_errors(prior, multi)}
    heading(
        "rows",
        "held-out halves, mean",
        "minimum to maximum",
        "Rota's constants",
        "priors, not fitted",
        "one utilisation for all",
        "vTrain itself",
    )
    for name, own in (("one node", 0.0837), ("several nodes", 0.1473)):
        found = errors[name]
        row(
            f"{name}, {len(shipped[name])}",
            f"{statistics.mean(found):.1%}",
            f"{min(found):.1%} to {max(found):.1%}",
            f"{mean_absolute(shipped[name]):.1%}",
            f"{mean_absolute(before[name]):.1%}",
            f"{constant[name]:.0%}",
            f"{own:.1%}",
        )
    return fits


def constant_utilisation(rows: list[MeasuredIteration]) -> float:
    """Return the mean error of operations / (peak * utilisation) with the best single utilisation for these rows."""
    ratios = [
        each.setup.shape.step_flops(each.setup.batch, recompute=each.plan.recompute is Recompute.FULL)
        / each.setup.gpus
        / A100.peak_flops
        / each.iteration_s
        for each in rows
    ]
    return min(
        mean_absolute([ratio / share - 1 for ratio in ratios]) for share in [step / 200 for step in range(5, 200)]
    )


def constants_of(fits: list[Accelerator]) -> None:
    heading("constant", "Rota", "range of the fits")
    kernels = {name: [getattr(fit.kernels, name) for fit in fits] for name in A100.kernels.__slots__}
    for name, values in kernels.items():
        row(f"`{name}`", f"{getattr(A100.kernels, name):.3g}", f"{min(values):.3g} to {max(values):.3g}")
    for name in ("node_bytes_per_s", "hop_latency_s"):
        values = [getattr(fit.interconnect, name) for fit in fits]
        row(f"`{name}`", f"{getattr(A100.interconnect, name):.3g}", f"{min(values):.3g} to {max(values):.3g}")


def left_out(single: list[MeasuredIteration], multi: list[MeasuredIteration]) -> None:
    """Print the errors of fits on the whole models that they leave out."""
    cases: list[tuple[str, Callable[[MeasuredIteration], bool]]] = [
        ("hidden 1,024 (one node)", lambda each: each.setup.shape.hidden == 1024),
        ("hidden 2,048 (one node)", lambda each: each.setup.shape.hidden == 2048),
        ("all on one node", lambda each: each.setup.gpus <= 8),
        ("3.6B", lambda each: each.setup.shape.hidden == 3072),
        ("18.4B", lambda each: each.setup.shape.hidden == 6144),
        ("39.1B", lambda each: each.setup.shape.hidden == 8192),
        ("175B", lambda each: each.setup.shape.hidden == 12288),
        ("all on several nodes", lambda each: each.setup.gpus > 8),
    ]
    heading("left out", "rows", "error on them")
    for name, is_out in cases:
        device = fitted(A100, [each for each in (*single, *multi) if not is_out(each)])
        unseen = [each for each in (*single, *multi) if is_out(each)]
        row(name, len(unseen), f"{mean_absolute(relative_errors(device, unseen)):.1%}")


def ranking(single: list[MeasuredIteration], multi: list[MeasuredIteration], fits: list[Accelerator]) -> None:
    heading("cases", "number", "best is predicted first", "among the first three", "time lost by the first prediction")
    kinds = {"one node": single, "several nodes": multi, "both": [*single, *multi]}
    for name, rows in kinds.items():
        for least in (2, 4):
            cases = [case for case in ranked_cases(A100, rows) if case.plans >= least]
            first = statistics.mean(case.place == 1 for case in cases)
            three = statistics.mean(case.place <= 3 for case in cases)
            lost = statistics.mean(case.loss for case in cases)
            row(f"{name}, {least} plans or more", len(cases), f"{first:.0%}", f"{three:.0%}", f"{lost:.1%}")
    cases = ranked_cases(A100, [*single, *multi], across_batches=True)
    first, three = (statistics.mean(case.place <= place for case in cases) for place in (1, 3))
    lost = statistics.mean(case.loss for case in cases)
    row("model and GPUs, all batches, per sequence", len(cases), f"{first:.0%}", f"{three:.0%}", f"{lost:.1%}")
    shares = []
    for fit in fits:
        cases = [case for case in ranked_cases(fit, [*single, *multi]) if case.plans >= 4]
        shares.append(statistics.mean(case.place <= 3 for case in cases))
    row("both, 4 or more, constants of the halves", len(cases), "", f"{min(shares):.0%} to {max(shares):.0%}", "")


def alpa() -> None:
    device = accelerator("v100")
    heading("model", "GPUs", "published stages", "predicted s", "stages found", "predicted s", "faster by")
    for name, (hidden, layers, heads, gpus, micro_batches, groups, published) in ALPA.items():
        shape = TransformerShape(hidden=hidden, layers=layers, heads=heads, seq=1024, vocab=51200)
        setup = TrainingSetup(shape=shape, batch=1024, gpus=gpus, per_node=8)
        task = StagedTask(device=device, setup=setup, micro_batches=micro_batches, groups=groups)
        bounds = group_bounds(task)
        places = [0, *accumulate(part for part, _, _, _ in published)]
        wanted = [(data, tensor) for _, _, data, tensor in published]
        sizes = [
            (bounds[end] - bounds[start], devices)
            for (start, end), (_, devices, _, _) in zip(pairwise(places), published, strict=True)
        ]
        options = costed_stages(task, sizes)
        known = next(plan for plan in options if [(one.data, one.tensor) for one in plan.stages] == wanted)
        best = plan_staged(task)
        found, given = ([(one.layers, one.gpus, one.data, one.tensor) for one in plan.stages] for plan in (best, known))
        stages = "the same" if found == given else shown(found)
        gain = known.iteration_s / best.iteration_s - 1
        row(name, gpus, shown(given), f"{known.iteration_s:.1f}", stages, f"{best.iteration_s:.1f}", f"{gain:.1%}")


def shown(stages: list[tuple[int, int, int, int]]) -> str:
    texts = [f"{part} on {gpus} (d{data} t{tensor})" for part, gpus, data, tensor in stages]
    return f"{len(texts)} x {texts[0]}" if len(set(texts)) == 1 and len(texts) > 1 else " + ".join(texts)


def galvatron() -> None:
    heading("case", "asserted, sequences/s", "Rota", "plan")
    for name, asserted in OPTIMA.items():
        plan = plan_layerwise(published_task(name))
        counts = {strategy: plan.strategies.count(strategy) for strategy in plan.strategies}
        texts = []
        for strategy, count in counts.items():
            marks = ("fsdp " if strategy.shards_weights else "") + ("recomputed" if strategy.recompute else "")
            texts.append(f"{count} x t{strategy.tensor} d{strategy.data} {marks}".strip())
        row(name, f"{asserted:.7f}", f"{plan.sequences_per_s:.7f}", ", ".join(texts))


def main(seeds: int) -> None:
    single, multi = measured()
    ptd_p()
    fits = halves(single, multi, seeds)
    left_out(single, multi)
    ranking(single, multi, fits)
    constants_of(fits)
    alpa()
    galvatron()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
