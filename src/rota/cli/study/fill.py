"""`rota fill`: how full placements make a cluster with pods of a list, without times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli.render import Column, OutputFormat, OutputOption, emit, progress
from rota.core.errors import RotaError

if TYPE_CHECKING:
    from rota.experiments.fill import FillResult
    from rota.traces.workload import Workload


def fill(
    trace: Annotated[Path, typer.Option(help="A list of pods or jobs; its times do not matter.", metavar="FILE")],
    cluster: Annotated[str, typer.Option(help="A cluster, or Alibaba's list of nodes (.csv).", metavar="SPEC")],
    placement: Annotated[
        list[str] | None,
        typer.Option(help="first-fit, best-fit, worst-fit, random, dot-product or fgd; may be repeated.", metavar="P"),
    ] = None,
    seeds: Annotated[int, typer.Option(help="So many orders of pods, from seed 0 on.", metavar="N", min=1)] = 3,
    demand: Annotated[
        float, typer.Option(help="Demand that arrives, over the GPUs of the cluster.", metavar="F")
    ] = 1.3,
    format: Annotated[str | None, typer.Option(help="The format of the list.", metavar="NAME")] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            help="The columns of a list in no known format: gpus=COLUMN, and cpus, memory, type. It needs no times.",
            metavar="NAME=COLUMN,...",
        ),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Fill a cluster with pods of a list until it is full, and compare placements by what they leave free.

    Examples:

      rota fill --trace openb_pod_list_default.csv --cluster openb_node_list_gpu_node.csv

      rota fill --trace requests.csv --columns gpus=gpu_milli:milli,cpus=cpu,memory=mem_mib:MiB --cluster v100=64/8

      rota fill --trace pods.csv --cluster v100=64/8,t4=32/4 --placement best-fit --placement fgd --seeds 10 -o csv
    """
    from rota.experiments.fill import PLACEMENT_NAMES, request_of
    from rota.experiments.fill import fill as fill_once
    from rota.files.cluster import read_cluster
    from rota.traces.readers.alibaba import read_alibaba_nodes

    if not demand > 0:
        raise RotaError(f"--demand is {demand:g}; it must be above 0")
    nodes = read_alibaba_nodes(Path(cluster)) if cluster.endswith(".csv") else read_cluster(cluster)
    jobs = [each.job for each in _listed(trace, format, columns).submissions]
    requests = [request_of(role) for job in jobs for role in job.roles for _ in range(role.count)]
    names = placement or list(PLACEMENT_NAMES)
    with progress("filling", len(names) * seeds) as bar:
        results = []
        for name in names:
            for seed in range(seeds):
                results.append(fill_once(nodes, requests, name, seed=seed, demand=demand))
                bar.advance()
    if output not in (OutputFormat.TABLE, OutputFormat.WIDE):
        emit([{field: getattr(each, field) for field in each.__slots__} for each in results], [], output)
        return
    _print(names, results, output)


def _listed(trace: Path, format: str | None, columns: str | None) -> Workload:
    """The list of what is to be placed, in a known format or by its columns."""
    from rota.traces.formats import read_trace
    from rota.traces.readers.any_csv import parse_columns, read_columns

    if columns is None:
        return read_trace(trace, format=format)
    if format is not None:
        raise RotaError(f"--columns is for a list in no known format, and --format {format} is one; give one of them")
    return read_columns(trace, parse_columns(columns), needs_times=False)


def _shown(values: list[float], most: float = 1.0) -> str:
    """A mean of fractions in percent with its 95% interval, which holds nothing that can't be."""
    from rota.experiments.number_format import shown
    from rota.experiments.statistics import mean_interval

    return shown(mean_interval(values).within(0.0, most), 100.0)


def _print(names: list[str], results: Sequence[FillResult], output: OutputFormat) -> None:
    """Print means with half-widths of 95% intervals over seeds."""
    rows = []
    for name in names:
        mine = [each for each in results if each.placement == name]
        row: dict[str, object] = {
            "placement": name,
            "allocation": _shown([each.allocation for each in mine]),
            "fragmentation": _shown([each.fragmentation for each in mine]),
            "first": _shown([each.first_refused_at for each in mine], math.inf),
        }
        for kind in mine[0].allocation_by_type:
            row[kind] = _shown([each.allocation_by_type[kind] for each in mine])
        rows.append(row)
    columns = [
        Column(key="placement"),
        Column(key="allocation", title="GPUs allocated (%)", right=True),
        Column(key="fragmentation", title="fragmented (%)", right=True),
        Column(key="first", title="first refused at (%)", right=True),
        *(Column(key=kind, title=f"{kind} (%)", right=True) for kind in list(rows[0])[4:]),
    ]
    emit(rows, columns, output)
