"""`rota plan parallel`: how many ways a transformer is trained in parallel, and what an iteration then takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Annotated, Any

import typer

from rota.cli.render import Column, OutputFormat, OutputOption, emit
from rota.core.errors import RotaError
from rota.planner.parallel.catalogue import named_model
from rota.planner.parallel.deployment import plan_fields
from rota.planner.parallel.hardware import GIB, Accelerator, accelerator
from rota.planner.parallel.iteration import iteration_cost
from rota.planner.parallel.plans import Recompute, Sharding, TrainingSetup, checked
from rota.planner.parallel.search import RatedPlan, Wishes, by_rule, by_search, usual_recompute
from rota.planner.parallel.transformer import TransformerShape


class RecomputeChoice(Enum):
    """What to do with activations: as is usual for the model, one way, or whichever is faster."""

    AUTO = "auto"
    NONE = "none"
    FULL = "full"
    SEARCH = "search"


class Method(Enum):
    """How `ptd-p` chooses what is left open."""

    SEARCH = "search"
    RULE = "rule"


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
MethodOption = Annotated[Method, typer.Option(help="Try all plans, or follow PTD-P's rule.")]
NetworkOption = Annotated[
    float | None, typer.Option(help="GB/s that a node sends to others, instead of the type's usual.", metavar="GB/S")
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
    method: MethodOption = Method.SEARCH,
    network_gb_s: NetworkOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Plan the parallel training of a transformer: time of an iteration, memory of a device, and whether it fits.

    What is left out of the plan (tensor, pipeline, data, micro-batch) is chosen.

    Examples:

      rota plan parallel --model gpt-39b --gpus 512

      rota plan parallel --model gpt --hidden 3072 --layers 30 --heads 32 --seq 2048 --vocab 51200 --batch 512 \\
      --gpus 64 --per-node 8 --gpu a100 --tensor 2 --pipeline 1 --data 32 --micro-batch 4 -o json
    """
    given = {"hidden": hidden, "layers": layers, "heads": heads, "seq": seq, "vocab": vocab, "batch": batch}
    shape, sequences = _model(model, given)
    setup = TrainingSetup(shape=shape, batch=sequences, gpus=gpus, per_node=per_node)
    device = _device(gpu, network_gb_s)
    wishes = Wishes(
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        micro_batch=micro_batch,
        interleave=interleave,
        recompute=_recompute(recompute, device, shape),
        sharding=zero,
    )
    rated = _rated(device, setup, wishes, method)
    rows = [_row(rated[0], wishes, method)]
    emit(rows, _COLUMNS, output)


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


def _device(name: str, network_gb_s: float | None) -> Accelerator:
    device = accelerator(name)
    if network_gb_s is None:
        return device
    if not network_gb_s > 0:
        raise RotaError(f"--network-gb-s {network_gb_s:g} is not above 0; give what a node sends, in GB/s")
    return replace(device, fabric=replace(device.fabric, node_bytes_per_s=network_gb_s * 1e9))


def _recompute(choice: RecomputeChoice, device: Accelerator, shape: TransformerShape) -> tuple[Recompute, ...]:
    match choice:
        case RecomputeChoice.AUTO:
            return (usual_recompute(device, shape),)
        case RecomputeChoice.SEARCH:
            return (Recompute.NONE, Recompute.FULL)
        case _:
            return (Recompute(choice.value),)


def _rated(device: Accelerator, setup: TrainingSetup, wishes: Wishes, method: Method) -> list[RatedPlan]:
    """The one plan that was given, whether it fits or not; or those that fit, best first."""
    wanted = wishes.plan()
    if wanted is not None:
        plan = checked(setup, wanted)
        return [RatedPlan(plan=plan, cost=iteration_cost(device, setup, plan))]
    return by_rule(device, setup, wishes) if method is Method.RULE else by_search(device, setup, wishes)


def _row(rated: RatedPlan, wishes: Wishes, method: Method) -> dict[str, Any]:
    cost = rated.cost
    return {
        "iteration_s": cost.iteration_s,
        "tflops_per_gpu": cost.tflops_per_gpu,
        "memory_bytes": cost.memory.total_bytes,
        "fits": cost.fits,
        "planner": "given" if wishes.plan() else f"ptd-p ({method.value})",
        "plan": plan_fields(rated.plan),
        "parts_s": {
            "compute": cost.compute_s,
            "tensor": cost.tensor_s,
            "messages": cost.messages_s,
            "bubble": cost.bubble_s,
            "gradients": cost.gradients_s,
            "optimizer": cost.optimizer_s,
        },
    }


def _degrees(plan: Mapping[str, object]) -> str:
    text = f"t{plan['tensor']} p{plan['pipeline']} d{plan['data']} b{plan['micro_batch']}"
    return text if plan["interleave"] == 1 else f"{text} v{plan['interleave']}"


_COLUMNS = (
    Column(key="planner", title="planner"),
    Column(key="plan", title="plan", show=_degrees),
    Column(key="iteration_s", title="iteration s", show=lambda value: f"{value:.3f}", right=True),
    Column(key="tflops_per_gpu", title="TFLOP/s per GPU", show=lambda value: f"{value:.1f}", right=True),
    Column(key="memory_bytes", title="GiB per GPU", show=lambda value: f"{value / GIB:.1f}", right=True),
    Column(key="fits", title="fits", show=lambda value: "yes" if value else "no"),
)
