"""`rota k8s`: Rota as the scheduler of a Kubernetes cluster."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.api.log import LogFormat, LogLevel, set_up
from rota.cli.extras import need
from rota.cli.manager.k8s_install import Context, Kubeconfig, Namespace, install_commands
from rota.cli.terminal import echo
from rota.core.errors import RotaError

if TYPE_CHECKING:
    from rota.drivers.kubernetes.settings import ClusterSettings

app = typer.Typer(help="Schedule the pods of a Kubernetes cluster.", no_args_is_help=True)
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="Settings from a file; they are not looked for in the cluster then.",
        metavar="FILE",
        exists=True,
        dir_okay=False,
    ),
]
ConfigMap = Annotated[str, typer.Option("--config-map", help="The ConfigMap that holds the settings.", metavar="NAME")]
Data = Annotated[Path | None, typer.Option("--data", help="Where the journal and records are.", metavar="DIR")]
Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        help="A database instead, for replicas to share.",
        metavar="URL",
        envvar="ROTA_DATABASE",
        show_envvar=False,
    ),
]
AdmissionPort = Annotated[
    int | None,
    typer.Option(
        "--admission-port",
        help="Answer the API server's admission reviews at this port; 0 takes a free one. Without it there are none.",
        min=0,
        max=65535,
    ),
]
AdmissionUrl = Annotated[
    str | None,
    typer.Option(
        "--admission-url", help="Where the API server finds the webhook, outside of a cluster.", metavar="URL"
    ),
]
CertificateLife = Annotated[
    str, typer.Option("--certificate-life", help="How long a certificate of the webhook lasts.", metavar="TIME")
]
Host = Annotated[str, typer.Option("--host", help="The address to answer at.", metavar="ADDRESS")]
LogFormatOption = Annotated[LogFormat, typer.Option("--log-format", help="How to log.")]
LogLevelOption = Annotated[LogLevel, typer.Option("--log-level", help="How much to log.")]


@app.command("run")
def run(
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    namespace: Namespace = "rota-system",
    config: Config = None,
    config_map: ConfigMap = "rota",
    leader_election: Annotated[
        bool, typer.Option("--leader-election/--no-leader-election", help="Elect one leader among the replicas.")
    ] = True,
    identity: Annotated[
        str | None, typer.Option("--identity", help="This replica's name in the Lease.", metavar="NAME")
    ] = None,
    data: Data = None,
    database: Database = None,
    host: Host = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", help="The port to answer at; 0 takes a free one.", min=0, max=65535)
    ] = 7650,
    require_token: Annotated[bool, typer.Option("--require-token", help="Ask for tokens on this machine too.")] = False,
    admission_port: AdmissionPort = None,
    admission_url: AdmissionUrl = None,
    certificate_life: CertificateLife = "30d",
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Schedule pods with `schedulerName: rota`; runs until it is told to stop (Ctrl-C). Pods run on meanwhile.

    Examples:

      rota k8s run --context my-cluster

      rota k8s run --config settings.yaml --no-leader-election
    """
    _serve(
        context=context,
        kubeconfig=kubeconfig,
        namespace=namespace,
        config=config,
        config_map=config_map,
        identity=identity,
        lease="rota" if leader_election else None,
        data=data,
        database=database,
        host=host,
        port=port,
        require_token=require_token,
        logs=(log_format, log_level),
        admission=_admission(admission_port, admission_url, certificate_life),
    )


@app.command("extender")
def extender(
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    namespace: Namespace = "rota-system",
    config: Config = None,
    config_map: ConfigMap = "rota",
    data: Data = None,
    database: Database = None,
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="The port to answer at.", min=0, max=65535)] = 9096,
    token_file: Annotated[
        Path | None,
        typer.Option(help="A file with the token that kube-scheduler sends, as a password in its urlPrefix."),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate file (PEM).", exists=True)] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's key (PEM).", exists=True)] = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Decide for kube-scheduler, which asks and binds: in HiveD's place, with HiveD's annotations.

    Examples:

      rota k8s extender --config settings.yaml

      rota k8s extender --host 0.0.0.0 --token-file token --tls-cert rota.pem --tls-key rota.key
    """
    if (tls_cert is None) != (tls_key is None):
        raise RotaError("TLS needs both --tls-cert and --tls-key")
    _serve(
        context=context,
        kubeconfig=kubeconfig,
        namespace=namespace,
        config=config,
        config_map=config_map,
        identity=None,
        lease=None,
        data=data,
        database=database,
        host=host,
        port=port,
        require_token=False,
        logs=(log_format, log_level),
        extends=True,
        extender_token=None if token_file is None else _token(token_file),
        certificate=tls_cert,
        key=tls_key,
    )


def _serve(
    *,
    context: str | None,
    kubeconfig: Path | None,
    config: Path | None,
    config_map: str,
    identity: str | None,
    data: Path | None,
    logs: tuple[LogFormat, LogLevel],
    **how: Any,
) -> None:
    """Check everything that can be checked here, then run."""
    need("kubernetes")
    from rota.api.serve_cluster import ClusterOptions, check_settings, serve_cluster
    from rota.drivers.kubernetes.api.connection import connect
    from rota.sdk.place import data_folder
    from rota.web.gate import Gate

    settings = _settings(config)
    check_settings(settings)
    options = ClusterOptions(
        connection=connect(context, kubeconfig),
        identity=identity or os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}",
        pod=os.environ.get("POD_NAME"),
        home=(data or data_folder() / "kubernetes").absolute(),
        config_map=None if config is not None else config_map,
        given=settings,
        pages=Gate,
        **how,
    )
    set_up(*logs)
    say = (lambda line: echo(line, err=True)) if logs[0] is LogFormat.TEXT else (lambda line: None)
    serve_cluster(options, say)


def _admission(port: int | None, url: str | None, life: str) -> Any:
    """Return how the admission webhook answers; None if it does not."""
    from rota.drivers.kubernetes.admission.server import SHORTEST_LIFE_S, AdmissionOptions
    from rota.files.quantities import parse_duration

    if port is None:
        if url is not None:
            raise RotaError("--admission-url is given without --admission-port; give both")
        return None
    if url is not None and not url.startswith("https://"):
        raise RotaError(f"--admission-url is {url!r}; the API server speaks https:// only")
    life_s = parse_duration(life)
    if life_s < SHORTEST_LIFE_S:
        raise RotaError(f"--certificate-life is {life!r}; it must be {SHORTEST_LIFE_S:.0f} s or more")
    return AdmissionOptions(port=port, url=url, life_s=life_s)


def _token(path: Path) -> str:
    """The token in a file; a short one is refused, since it could be guessed."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise RotaError(f"--token-file: {path} can't be read: {error}") from error
    if len(text) < 20 or not text.isascii():
        raise RotaError(f"--token-file: {path} holds {len(text)} characters; a token has 20 ASCII characters or more")
    return text


def _settings(path: Path | None) -> ClusterSettings:
    from rota.drivers.kubernetes.settings import ClusterSettings, read_settings

    return ClusterSettings() if path is None else read_settings(path.read_text(encoding="utf-8"), str(path))


install_commands(app)
