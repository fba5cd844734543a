"""`rota k8s`: Rota as the scheduler of a Kubernetes cluster."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rota.api.log import LogFormat, LogLevel, set_up

if TYPE_CHECKING:
    from rota.drivers.kubernetes.settings import ClusterSettings

app = typer.Typer(help="Schedule the pods of a Kubernetes cluster.", no_args_is_help=True)
Context = Annotated[
    str | None,
    typer.Option("--context", help="A context of the kubeconfig; the current one by default.", metavar="NAME"),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option("--kubeconfig", help="A kubeconfig; in a pod its own account is used without one.", metavar="FILE"),
]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Where Rota itself lives.", metavar="NAME")]


@app.command("run")
def run(
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    namespace: Namespace = "rota-system",
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", help="Settings from a file; they are not looked for in the cluster then.", metavar="FILE"
        ),
    ] = None,
    config_map: Annotated[
        str, typer.Option("--config-map", help="The ConfigMap that holds the settings.", metavar="NAME")
    ] = "rota",
    leader_election: Annotated[
        bool, typer.Option("--leader-election/--no-leader-election", help="Take turns with other replicas.")
    ] = True,
    identity: Annotated[
        str | None, typer.Option("--identity", help="This replica's name in the Lease.", metavar="NAME")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="Where the journal and records are.", metavar="DIR")
    ] = None,
    database: Annotated[
        str | None, typer.Option("--database", help="A database instead, for replicas to share.", metavar="URL")
    ] = None,
    host: Annotated[str, typer.Option("--host", help="The address to answer at.", metavar="ADDRESS")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", help="The port to answer at; 0 takes a free one.", min=0, max=65535)
    ] = 7650,
    require_token: Annotated[bool, typer.Option("--require-token", help="Ask for tokens on this machine too.")] = False,
    log_format: Annotated[LogFormat, typer.Option("--log-format", help="How to log.")] = LogFormat.TEXT,
    log_level: Annotated[LogLevel, typer.Option("--log-level", help="How much to log.")] = LogLevel.INFO,
) -> None:
    """Schedule pods with `schedulerName: rota`; runs until it is told to stop (Ctrl-C). Pods run on meanwhile.

    Examples:

      rota k8s run --context my-cluster

      rota k8s run --config settings.yaml --no-leader-election
    """
    from rota.api.serve_cluster import ClusterOptions, check_settings, serve_cluster
    from rota.drivers.kubernetes.connection import connect
    from rota.sdk.place import data_folder
    from rota.web.gate import Gate

    settings = _settings(config)
    check_settings(settings)
    connection = connect(context, kubeconfig)
    set_up(log_format, log_level)
    serve_cluster(
        ClusterOptions(
            connection=connection,
            namespace=namespace,
            identity=identity or os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}",
            home=(data or data_folder() / "kubernetes").absolute(),
            config_map=None if config is not None else config_map,
            given=settings,
            lease="rota" if leader_election else None,
            host=host,
            port=port,
            database=database,
            require_token=require_token,
            pages=Gate,
        ),
        (lambda line: typer.echo(line, err=True)) if log_format is LogFormat.TEXT else (lambda line: None),
    )


def _settings(path: Path | None) -> ClusterSettings:
    from rota.drivers.kubernetes.settings import ClusterSettings, read_settings

    return ClusterSettings() if path is None else read_settings(path.read_text(encoding="utf-8"), str(path))


@app.command("manifests")
def manifests(
    namespace: Namespace = "rota-system",
    image: Annotated[str, typer.Option("--image", help="The image that holds Rota.", metavar="NAME")] = "rota:0.1.0",
) -> None:
    """Print what has to be in a cluster: namespace, rights, the PodGroup type, settings, two replicas of Rota.

    Examples:

      rota k8s manifests | kubectl apply -f -

      rota k8s manifests --image registry.example/rota:1 > rota.yaml
    """
    import yaml

    from rota.drivers.kubernetes.manifests import manifests as objects

    typer.echo(yaml.safe_dump_all(objects(namespace, image), sort_keys=False), nl=False)
