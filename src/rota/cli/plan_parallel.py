"""`rota plan parallel`: how many ways a transformer is trained in parallel, and what an iteration then takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from rota.cli.render import Column, OutputFormat, OutputOption, emit_one
from rota.core.errors import RotaError
from rota.planner.parallel.catalogue import named_model
from rota.planner.parallel.deployment import plan_fields
from rota.planner.parallel.hardware import GIB, Accelerator, accelerator
from rota.planner.parallel.iteration import iteration_cost
from rota.planner.parallel.planners import ParallelAnswer, costed_answer, parallel_planner
from rota.planner.parallel.plans import Recompute, Sharding, TrainingSetup, checked
from rota.planner.parallel.search import PlanConstraints, usual_recompute
from rota.planner.parallel.transformer import TransformerShape


class RecomputeChoice(Enum):
    """What to do with activations: as is usual for the model, one way, or whichever is faster."""

    AUTO = "auto"
    NONE = "none"
    FULL = "full"
    SEARCH = "search"


ModelOption = Annotated[
    str, typer.Option(help="`gpt` with its shape, or a name such as `gpt-39b`.", metavar="NAME", show_default=True)
]
HiddenOption = Annotated[int | None, typer.Option(help="Hidden size.", metavar="H")]
LayersOption = Annotated[int | None, typer.Option(help="Transformer layers.", metavar="L")]
HeadsOption = Annotated[int | None, typer.Option(help="Attention heads.", metavar="A")]
SeqOption = Annotated[int | None, typer.Option(help="Tokens in a sequence.", metavar="S")]
VocabOption = Annotated[int | None, typer.Option(help="Words of the vocabulary.", metavar="V")]
BatchOption = Annotated[int | None, typer.Option(help="Sequences in a batch, over all devices.", metavar="B")]
GpusOption = Annotated[int, typer.Option(help="Devices.", metavar="N")]
PerNodeOption = Annotated[int, typer.Option(help="Devices of a node.", metavar="K")]
GpuOption = Annotated[str, typer.Option(help="Device type: v100, a100, h100 or h200.", metavar="TYPE")]
TensorOption = Annotated[int | None, typer.Option(help="Devices that split each layer.", metavar="T")]
PipelineOption = Annotated[int | None, typer.Option(help="Stages.", metavar="P")]
DataOption = Annotated[int | None, typer.Option(help="Replicas.", metavar="D")]
MicroBatchOption = Annotated[int | None, typer.Option(help="Sequences in a micro-batch.", metavar="b")]
InterleaveOption = Annotated[
    int | None,
    typer.Option(help="Model chunks per device; 1 if a micro-batch is given, else chosen.", metavar="V"),
]
RecomputeOption = Annotated[RecomputeChoice, typer.Option(help="Whether activations are computed again.")]
ZeroOption = Annotated[Sharding, typer.Option(help="What replicas divide among themselves.")]
PlannerOption = Annotated[
    str,
    typer.Option(help="What chooses the plan: ptd-p, ptd-p-rule, alpa-like or galvatron-like.", metavar="NAME"),
]
MeasuredOption = Annotated[
    Path | None,
    typer.Option(help="Fit the constants to these measured iterations first: a table in CSV.", metavar="FILE"),
]
NetworkOption = Annotated[
    float | None, typer.Option(help="GB/s that a node sends to others, instead of the type's usual.", metavar="GB/S")
]

LinksOption = Annotated[
    str | None, typer.Option(help="The network file whose links give the rates between devices.", metavar="FILE")
]


def parallel(
    gpus: GpusOption,
    model: ModelOption = "gpt",
    hidden: HiddenOption = None,
    layers: LayersOption = None,
    heads: HeadsOption = None,
    seq: SeqOption = None,
    vocab: VocabOption = None,
    batch: BatchOption = None,
    per_node: PerNodeOption = 8,
    gpu: GpuOption = "a100",
    tensor: TensorOption = None,
    pipeline: PipelineOption = None,
    data: DataOption = None,
    micro_batch: MicroBatchOption = None,
    interleave: InterleaveOption = None,
    recompute: RecomputeOption = RecomputeChoice.AUTO,
    zero: ZeroOption = Sharding.NONE,
    planner: PlannerOption = "ptd-p",
    network_gb_s: NetworkOption = None,
    network: LinksOption = None,
    measured: MeasuredOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Plan the parallel training of a transformer: time of an iteration, memory of a device, and whether it fits.

    What is left out of the plan (tensor, pipeline, data, micro-batch) is chosen.

    Examples:

      rota plan parallel --model gpt-39b --gpus 512

      rota plan parallel --model gpt-3.6b --gpus 64 --tensor 2 --pipeline 1 --data 32 --micro-batch 4 -o json

      rota plan parallel --hidden 4096 --layers 32 --heads 32 --seq 4096 --vocab 32000 --batch 256 --gpus 16 --gpu h200
    """
    given = {"hidden": hidden, "layers": layers, "heads": heads, "seq": seq, "vocab": vocab, "batch": batch}
    shape, sequences = _model(model, given)
    setup = TrainingSetup(shape=shape, batch=sequences, gpus=gpus, per_node=per_node)
    device = _device(gpu, network_gb_s, measured)
    if network is not None:
        device = _on_network(device, network, network_gb_s, setup)
    constraints = PlanConstraints(
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        micro_batch=micro_batch,
        interleave=interleave,
        recompute=_recompute(recompute, device, shape),
        sharding=zero,
    )
    answer, chosen_by = _answer(device, setup, constraints, planner)
    row = _row(answer, chosen_by)
    if output in (OutputFormat.TABLE, OutputFormat.WIDE):
        row["plan"] = answer.short
    emit_one(row, _COLUMNS, output)


def _row(answer: ParallelAnswer, chosen_by: str) -> dict[str, object]:
    return {
        "iteration_s": answer.iteration_s,
        "tflops_per_gpu": answer.tflops_per_gpu,
        "memory_bytes": answer.memory_bytes,
        "fits": answer.fits,
        "planner": chosen_by,
        "plan": answer.plan,
        "parts_s": answer.parts_s,
    }


def _model(name: str, given: Mapping[str, int | None]) -> tuple[TransformerShape, int]:
    """The model's shape and batch: all from options for `gpt`, else the named model's, which options change."""
    known: dict[str, int] = {}
    if name.lower() != "gpt":
        found = named_model(name)
        shape = found.shape
        known = {"hidden": shape.hidden, "layers": shape.layers, "heads": shape.heads, "seq": shape.seq}
        known |= {"vocab": shape.vocab, "batch": found.batch}
    known |= {key: value for key, value in given.items() if value is not None}
    for key in given:
        if key not in known:
            raise RotaError(f"--model gpt needs --{key}; give it, or a named model such as --model gpt-39b")
    batch = known.pop("batch")
    return TransformerShape(**known), batch


def _device(name: str, network_gb_s: float | None, measured: Path | None) -> Accelerator:
    device = accelerator(name)
    if measured is not None:
        device = _fitted(device, measured)
    if network_gb_s is None:
        return device
    if not network_gb_s > 0:
        raise RotaError(f"--network-gb-s {network_gb_s:g} is not above 0; give what a node sends, in GB/s")
    return replace(device, interconnect=replace(device.interconnect, node_bytes_per_s=network_gb_s * 1e9))


def _on_network(device: Accelerator, spec: str, network_gb_s: float | None, setup: TrainingSetup) -> Accelerator:
    """The device with the rates of a network's links; nodes that its file does not name are numbered."""
    from rota.files.network.network_file import network_from_spec
    from rota.planner.parallel.network_rates import interconnect_on

    if network_gb_s is not None:
        raise RotaError("--network and --network-gb-s both say what a node sends; give one of them")
    nodes = -(-setup.gpus // setup.per_node)
    model = network_from_spec(spec, [f"n{number + 1}" for number in range(nodes)])
    rates = interconnect_on(device.interconnect, model, nodes, min(setup.per_node, setup.gpus))
    return replace(device, interconnect=rates)


def _fitted(device: Accelerator, file: Path) -> Accelerator:
    from rota.planner.parallel.fitting import fitted
    from rota.planner.parallel.measured import read_iterations

    try:
        rows = read_iterations(file, Recompute.NONE)
    except OSError as error:
        raise RotaError(f"--measured {file}: {error.strerror}; give a table of measured iterations") from error
    return fitted(device, rows)


def _recompute(choice: RecomputeChoice, device: Accelerator, shape: TransformerShape) -> tuple[Recompute, ...]:
    match choice:
        case RecomputeChoice.AUTO:
            return (usual_recompute(device, shape),)
        case RecomputeChoice.SEARCH:
            return (Recompute.NONE, Recompute.FULL)
        case _:
            return (Recompute(choice.value),)


def _answer(
    device: Accelerator, setup: TrainingSetup, constraints: PlanConstraints, name: str
) -> tuple[ParallelAnswer, str]:
    """The one plan that was given, whether it fits or not; or what the planner chooses."""
    planner = parallel_planner(name)
    if not planner.takes_constraints:
        _refuse_constraints(constraints, name)
    wanted = constraints.plan()
    if wanted is None:
        return planner.plan(device, setup, constraints), name
    plan = checked(setup, wanted)
    return costed_answer(plan_fields(plan), iteration_cost(device, setup, plan)), "given"


def _refuse_constraints(constraints: PlanConstraints, name: str) -> None:
    given = {
        "tensor": constraints.tensor,
        "pipeline": constraints.pipeline,
        "data": constraints.data,
        "micro-batch": constraints.micro_batch,
        "interleave": constraints.interleave,
    }
    for option, value in given.items():
        if value is not None:
            raise RotaError(f"--{option} {value} cannot be given to --planner {name}, which chooses it; use ptd-p")


_COLUMNS = (
    Column(key="planner", title="planner"),
    Column(key="plan", title="plan"),
    Column(key="iteration_s", title="iteration s", show=lambda value: f"{value:.3f}", right=True),
    Column(key="tflops_per_gpu", title="TFLOP/s per GPU", show=lambda value: f"{value:.1f}", right=True),
    Column(key="memory_bytes", title="GiB per GPU", show=lambda value: f"{value / GIB:.1f}", right=True),
    Column(key="fits", title="fits", show=lambda value: "yes" if value else "no"),
)
