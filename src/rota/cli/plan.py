"""`rota plan`: plans inside a job, from graphs of operators to stages on devices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rota.cli.plan_devices import named_devices
from rota.cli.plan_parallel import parallel
from rota.cli.render import Column, OutputFormat, OutputOption, emit, emit_one, progress
from rota.cli.terminal import echo
from rota.core.errors import RotaError
from rota.planner.description.fields import write_json
from rota.planner.description.problem import PlanningProblem
from rota.planner.description.read import read_problem
from rota.planner.description.rota_graph import as_rota_graph
from rota.planner.figure import write_figure
from rota.planner.options import PlannerOptions
from rota.planner.plan import PlacementPlan, PlanObjective
from rota.planner.registry import PLANNERS, default_planner, planner_named, run_default, run_planner
from rota.planner.simulate.report import PlanReport, StepSettings, plan_report
from rota.planner.simulate.schedules import PipelineSchedule

app = typer.Typer(
    help="Plan inside a job: which operator runs on which device, in which stages, and how long a step takes.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

GraphArgument = Annotated[
    Path,
    typer.Argument(
        metavar="GRAPH", help="Operators and devices: Rota's or dnn-partitioning's JSON, a PipeDream profile."
    ),
]
ObjectiveOption = Annotated[
    PlanObjective | None,
    typer.Option(
        "--objective",
        help="What to make small: a device's load, or one sample's time; the planner's own, else throughput.",
    ),
]
PlannerOption = Annotated[
    str | None,
    typer.Option(
        "--planner",
        help="Name from `rota plan policies`; max-load (linear if too wide) for throughput, pesto for latency.",
        autocompletion=lambda: [entry.name for entry in PLANNERS if entry.places],
        metavar="NAME",
    ),
]
MicroBatchesOption = Annotated[int, typer.Option("--micro-batches", help="Micro-batches of a step.")]
SeedOption = Annotated[int, typer.Option("--seed", help="The same seed gives the same plan.")]
LimitOption = Annotated[float, typer.Option("--time-limit", help="Seconds that planning with a solver may take.")]
WITH_DEADLINE = ("cut", "abacus")
DeadlineOption = Annotated[
    float | None, typer.Option("--deadline", help="Bound in ms, for cut (least energy) and abacus.", metavar="MS")
]
ScheduleOption = Annotated[
    PipelineSchedule | None,
    typer.Option(
        "--schedule",
        help="Order of the passes in the step that is simulated: 1f1b unless given, early backward for dapple.",
    ),
]
ChunksOption = Annotated[
    int | None, typer.Option("--chunks", help="Parts of the model on each device, for the interleaved schedule; 2.")
]
RecomputeOption = Annotated[
    bool, typer.Option("--recompute", help="Compute activations again in the backward pass instead of keeping them.")
]
SwapOption = Annotated[
    float | None,
    typer.Option("--swap", help="Swap activations to the host between the passes, at this bandwidth.", metavar="GB/S"),
]
FigureOption = Annotated[
    Path | None, typer.Option("--figure", help="Write a page with the plan as figures here.", metavar="FILE.html")
]
DevicesOption = Annotated[
    str | None,
    typer.Option(
        "--devices",
        help="Devices instead of the file's, as TYPE=COUNT[/PER_NODE]; 25 GB/s, and 1 GB/s between nodes.",
        metavar="TYPE=COUNT",
    ),
]

LinksOption = Annotated[
    str | None,
    typer.Option("--network", help="The network file whose links connect the nodes of --devices.", metavar="FILE"),
]


def _examples(*lines: str) -> str:
    """The end of a command's help, kept in lines."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


@app.command(
    "place",
    epilog=_examples(
        "rota plan place layer-bert24_training.json --objective throughput -o json",
        "rota plan place model.json --objective latency --planner pesto --time-limit 30",
        "rota plan place vgg-19-pbs-32.txt --planner dapple --devices gpu=16/8 --figure plan.html",
        "rota plan place model.json --devices v100=8/2 --network net.yaml",
    ),
)
def place(
    graph: GraphArgument,
    objective: ObjectiveOption = None,
    planner: PlannerOption = None,
    devices: DevicesOption = None,
    network: LinksOption = None,
    micro_batches: MicroBatchesOption = 8,
    seed: SeedOption = 0,
    time_limit_s: LimitOption = 10.0,
    deadline_ms: DeadlineOption = None,
    schedule: ScheduleOption = None,
    chunks: ChunksOption = None,
    recompute: RecomputeOption = False,
    swap_gb_s: SwapOption = None,
    figure: FigureOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Place the operators of a graph on devices, and say what the plan comes to."""
    if deadline_ms is not None and planner not in WITH_DEADLINE:
        raise RotaError(f"--deadline is for {' and '.join(WITH_DEADLINE)}; name one of them with --planner")
    step = _step(micro_batches, schedule, chunks, recompute, swap_gb_s)
    problem = read_problem(graph, named_devices(devices, network))
    options = PlannerOptions(
        objective=objective,
        micro_batches=micro_batches,
        time_limit_s=time_limit_s,
        seed=seed,
        deadline_ms=deadline_ms,
    )
    name = planner or default_planner(objective or PlanObjective.THROUGHPUT)
    with progress(f"planning {graph.name} with {name}", total=1.0) as bar:
        if planner is None:
            found = run_default(problem, options, bar.update)
        else:
            found = run_planner(planner, problem, options, bar.update)
    report = plan_report(problem, found, step)
    if figure is not None:
        write_figure(figure, problem, [(found, report)])
    record = _record(problem, found, report)
    if output is not OutputFormat.TABLE:
        emit_one(record, (), output)
        return
    emit([record], _PLAN_COLUMNS, output)
    echo()
    emit(record["stages"], _STAGE_COLUMNS, output)
    for note in found.notes:
        echo(f"note: {note}", err=True)


@app.command(
    "compare",
    epilog=_examples(
        "rota plan compare layer-bert24_training.json",
        "rota plan compare vgg-19-pbs-32.txt --devices gpu=16/8 --planner dapple --planner pipedream",
    ),
)
def compare(
    graph: GraphArgument,
    planners: Annotated[
        list[str] | None,
        typer.Option(
            "--planner", help="A planner to compare, may be given again; all that place operators unless given."
        ),
    ] = None,
    devices: DevicesOption = None,
    micro_batches: MicroBatchesOption = 8,
    seed: SeedOption = 0,
    time_limit_s: LimitOption = 10.0,
    schedule: ScheduleOption = None,
    chunks: ChunksOption = None,
    recompute: RecomputeOption = False,
    swap_gb_s: SwapOption = None,
    figure: FigureOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Plan one graph with several planners and judge all plans by the same rules."""
    step = _step(micro_batches, schedule, chunks, recompute, swap_gb_s)
    problem = read_problem(graph, named_devices(devices))
    options = PlannerOptions(micro_batches=micro_batches, time_limit_s=time_limit_s, seed=seed)
    names = planners or [entry.name for entry in PLANNERS if entry.places and entry.needs is None and entry.compared]
    for name in names:
        planner_named(name)
    plans, records = [], []
    with progress(f"planning {graph.name}", total=float(len(names))) as bar:
        for number, name in enumerate(names):
            try:
                found = run_planner(name, problem, options)
                report = plan_report(problem, found, step)
            except RotaError as err:
                records.append({"planner": name, "notes": [str(err)]})
                echo(f"note: {name}: {err}", err=True)
                continue
            plans.append((found, report))
            records.append(_record(problem, found, report))
            bar.update(number + 1.0)
    if figure is not None:
        write_figure(figure, problem, plans)
    emit(records, _COMPARE_COLUMNS, output)


@app.command(
    "profile",
    epilog=_examples(
        "rota plan profile train.py:model --graph model.json",
        "rota plan profile train.py:model --type cpu --type v100 --depth 2 --training -o json",
        "rota plan place model.json --devices cpu=4 --planner max-load",
    ),
)
def profile(
    target: Annotated[
        str,
        typer.Argument(
            metavar="SCRIPT:NAME",
            help="A script and its torch.nn.Module, or a function that returns (model, inputs).",
        ),
    ],
    graph: Annotated[
        Path | None, typer.Option("--graph", help="Write the graph of operators here.", metavar="FILE.json")
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            help="Device type, may be given again: cpu and cuda are measured; v100, a100, h100, t4 estimated.",
        ),
    ] = None,
    depth: Annotated[
        int | None, typer.Option("--depth", help="Put operators of one module together down to this depth.")
    ] = None,
    training: Annotated[bool, typer.Option("--training", help="Add the backward pass.")] = False,
    repeats: Annotated[int, typer.Option("--repeats", help="Runs that are measured.")] = 5,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Turn a PyTorch model into a graph of operators with times, for the planners."""
    from rota.planner.pytorch.graph import ModelProfiling, model_graph
    from rota.planner.pytorch.load import load_model

    settings = ModelProfiling(device_types=tuple(types or ["cpu"]), repeats=repeats, depth=depth, training=training)
    model, inputs = load_model(target)
    with progress(f"profiling {target}"):
        found = model_graph(model, inputs, settings, target)
    value = as_rota_graph(found)
    if graph is not None:
        write_json(graph, value)
    if output is OutputFormat.JSON:
        emit_one({"source": target, **value}, (), output)
        return
    rows = [
        {
            "name": operator.name,
            **{f"{each}_ms": operator.time_ms[each] for each in settings.device_types},
            "output_bytes": operator.output_bytes,
            "weight_bytes": operator.weight_bytes,
        }
        for operator in found.operators
    ]
    times = [Column(key=f"{each}_ms", title=f"{each} ms", show=_ms, right=True) for each in settings.device_types]
    sizes = [
        Column(key="output_bytes", title="output bytes", right=True),
        Column(key="weight_bytes", title="weight bytes", right=True),
    ]
    emit(rows, [Column(key="name", title="operator"), *times, *sizes], output)


@app.command("policies", epilog=_examples("rota plan policies", "rota plan policies -o json"))
def policies(output: OutputOption = OutputFormat.TABLE) -> None:
    """List the planners: what each optimises, guarantees and needs, and where it comes from."""
    from rota.planner.parallel.planners import PARALLEL_PLANNERS

    fields = ("name", "summary", "objective", "guarantee", "cites")
    rows = [{name: getattr(entry, name) for name in fields} | {"needs": entry.needs} for entry in PLANNERS]
    rows += [{name: getattr(entry, name) for name in fields} | {"needs": None} for entry in PARALLEL_PLANNERS]
    emit(rows, _POLICY_COLUMNS, output)


app.command("parallel")(parallel)


def _step(
    micro_batches: int,
    schedule: PipelineSchedule | None,
    chunks: int | None,
    recompute: bool,
    swap_gb_s: float | None,
) -> StepSettings:
    """How the step is simulated, as the options say."""
    return StepSettings(
        micro_batches=micro_batches,
        schedule=schedule,
        chunks=chunks,
        recompute=recompute,
        swap_bytes_per_ms=None if swap_gb_s is None else swap_gb_s * 1e6,
    )


def _record(problem: PlanningProblem, plan: PlacementPlan, report: PlanReport) -> dict[str, Any]:
    """What programs get of a plan."""
    return {
        "graph": problem.graph.source,
        "planner": plan.planner,
        "objective_kind": plan.objective.value,
        "objective": plan.value_ms,
        "formula_ms": plan.formula_ms,
        "evaluated_ms": report.evaluated_ms,
        "proved_optimal": plan.proved_optimal,
        "seconds": plan.seconds,
        "max_load_ms": report.max_load_ms,
        "latency_ms": report.latency_ms,
        "step_ms": report.step_ms,
        "bubble": report.bubble,
        "peak_bytes": report.peak_bytes,
        "stages": [
            {
                "devices": list(stage.devices),
                "load_ms": stage.load_ms,
                "compute_ms": stage.compute_ms,
                "transfer_ms": stage.transfer_ms,
                "memory_bytes": stage.memory_bytes,
                "operators": [problem.graph.operators[number].name for number in stage.operators],
            }
            for stage in plan.stages
        ],
        "notes": list(plan.notes),
    }


def _ms(value: float) -> str:
    return f"{value:.3f}"


def _gib(value: float) -> str:
    return f"{value / 2**30:.2f}"


_PLAN_COLUMNS = (
    Column(key="planner"),
    Column(key="objective_kind", title="objective"),
    Column(key="objective", title="ms", show=_ms, right=True),
    Column(key="formula_ms", title="by its formula", show=_ms, right=True, if_known=True),
    Column(key="evaluated_ms", title="evaluated ms", show=_ms, right=True, if_known=True),
    Column(key="proved_optimal", title="proved", show=lambda value: "yes" if value else "no"),
    Column(key="seconds", title="CPU s", show=lambda value: f"{value:.2f}", right=True),
)
_STAGE_COLUMNS = (
    Column(
        key="devices", show=lambda names: names[0] if len(names) == 1 else f"{names[0]} to {names[-1]} ({len(names)})"
    ),
    Column(key="operators", show=lambda names: str(len(names)), right=True),
    Column(key="load_ms", title="load ms", show=_ms, right=True),
    Column(key="compute_ms", title="compute ms", show=_ms, right=True),
    Column(key="transfer_ms", title="transfers ms", show=_ms, right=True),
    Column(key="memory_bytes", title="GiB", show=_gib, right=True),
)
_COMPARE_COLUMNS = (
    Column(key="planner"),
    Column(key="max_load_ms", title="max load ms", show=_ms, right=True),
    Column(key="latency_ms", title="latency ms", show=_ms, right=True),
    Column(key="step_ms", title="step ms", show=_ms, right=True),
    Column(key="bubble", show=lambda value: f"{value:.1%}", right=True),
    Column(key="peak_bytes", title="peak GiB", show=_gib, right=True),
    Column(key="stages", show=lambda stages: str(len(stages)), right=True),
    Column(key="proved_optimal", title="proved", show=lambda value: "yes" if value else "no"),
    Column(key="seconds", title="CPU s", show=lambda value: f"{value:.2f}", right=True),
)
_POLICY_COLUMNS = (
    Column(key="name"),
    Column(key="summary"),
    Column(key="objective"),
    Column(key="guarantee"),
    Column(key="cites"),
    Column(key="needs", if_known=True),
)
