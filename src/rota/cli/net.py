"""`rota net`: the network of a cluster, the load of its links over time, and measurements of real links."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rota.cli.render import Column, OutputFormat, OutputOption, emit
from rota.cli.terminal import echo
from rota.core.errors import RotaError

app = typer.Typer(no_args_is_help=True, help="Show and measure the network between nodes.")
ClusterOption = Annotated[
    str | None, typer.Option(help="The cluster whose nodes the network connects, if its file names none.")
]
_KINDS = (
    *(Column(key=key) for key in ("links", "between")),
    *(Column(key=key, right=True) for key in ("count", "gbit_per_s", "total_gbit_per_s")),
)
_LOADS = (Column(key="link"), *(Column(key=key, right=True) for key in ("gbit_per_s", "mean_load", "peak_load")))


def _names(cluster: str | None) -> list[str]:
    if cluster is None:
        return []
    from rota.files.cluster import read_cluster

    return [str(node.id) for node in read_cluster(cluster).nodes]


@app.command("show")
def show(
    file: Annotated[str, typer.Argument(help="The network file.", metavar="FILE")],
    cluster: ClusterOption = None,
    path: Annotated[
        tuple[str, str] | None, typer.Option(help="List the shortest paths between two nodes.", metavar="NODE NODE")
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show the topology: its links by layer and rate, or the paths between two nodes.

    Examples:

      rota net show net.yaml --cluster gpu=64/8

      rota net show net.yaml --cluster gpu=64/8 --path n1 n8
    """
    from rota.files.network.network_file import network_from_spec
    from rota.network.layers import layers_of
    from rota.network.routing import Router

    model = network_from_spec(file, _names(cluster))
    topology = model.topology
    if path is not None:
        for name in path:
            if name not in topology.index:
                raise RotaError(f"{file}: no vertex is named {name!r}; nodes are {topology.nodes[0]!r} and others")
        found = Router(topology).paths(topology.index[path[0]], topology.index[path[1]])
        rows = [
            {
                "path": " ".join([path[0], *(topology.links[link].target for link in links)]),
                "gbit_per_s": _gbit(min((topology.links[link].bytes_per_s for link in links), default=0.0)),
            }
            for links in found
        ]
        emit(rows, (Column(key="path"), Column(key="gbit_per_s", right=True)), output)
        return
    rows = [
        {
            "links": topology.kind,
            "between": layer.between,
            "count": layer.count,
            "gbit_per_s": _gbit(layer.bytes_per_s),
            "total_gbit_per_s": _gbit(layer.count * layer.bytes_per_s),
        }
        for layer in layers_of(topology)
    ]
    emit(rows, _KINDS, output)


def _gbit(bytes_per_s: float) -> float:
    return round(8e-9 * bytes_per_s, 3)


@app.command("load")
def load(
    journal: Annotated[Path, typer.Argument(help="A journal, such as `rota sim --out` writes.", metavar="JOURNAL")],
    network: Annotated[
        str | None, typer.Option(help="The network file; that of the run if not given.", metavar="FILE")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write a page with the figure here.", metavar="FILE.html")] = None,
    top: Annotated[int, typer.Option(help="How many links to list.", min=1)] = 20,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show the load of links over time: mean and peak of the busiest, and a page with the figure.

    Examples:

      rota net load out/journal.jsonl --out links.html
    """
    from rota.files.network.network_file import network_from_spec
    from rota.report.link_load import link_series, load_page
    from rota.store.journal import JournalReader

    reader = JournalReader(journal)
    spec = network or reader.header.scenario.network
    if spec is None:
        raise RotaError(f"{journal}: its run had no network; name one with --network FILE")
    model = network_from_spec(spec, [str(node.id) for node in reader.header.cluster.nodes])
    series = link_series(reader, model)
    if out is not None:
        out.write_text(load_page(series, f"Links of {journal}"), encoding="utf-8")
        echo(f"wrote {out}", err=True)
    rows = [
        {
            "link": each.link,
            "gbit_per_s": _gbit(each.bytes_per_s),
            "mean_load": round(each.mean, 4),
            "peak_load": round(each.peak, 4),
        }
        for each in series[:top]
    ]
    emit(rows, _LOADS, output)


@app.command("bench")
def bench(
    out: Annotated[Path, typer.Option(help="The network file to write; tables are written beside it.")] = Path(
        "net.yaml"
    ),
    ranks: Annotated[
        int, typer.Option(help="Processes on this machine, unless RANK and WORLD_SIZE say otherwise.", min=2, max=64)
    ] = 2,
    most: Annotated[str, typer.Option(help="The largest message.", metavar="BYTES")] = "16MB",
    repeats: Annotated[int, typer.Option(help="Measurements of each size.", min=1)] = 5,
) -> None:
    """Measure links with all-reduces (PyTorch, gloo) and write the network file.

    Started once on each node with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as by torchrun, it measures between
    nodes; otherwise between processes of this machine.

    Examples:

      rota net bench --ranks 4 --out net.yaml
    """
    from rota.cli.net_bench import measure
    from rota.files.quantities import NotAQuantity, parse_bytes

    try:
        size = parse_bytes(most)
    except NotAQuantity as error:
        raise RotaError(f"--most: {error}") from None
    written = measure(out, ranks=ranks, most=size, repeats=repeats)
    for path in written:
        echo(f"wrote {path}", err=True)
