"""`rota k8s install`, `upgrade`, `uninstall` and `manifests`: Rota in a cluster, and what it consists of."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.api.log import LogFormat, LogLevel, set_up
from rota.cli.extras import need
from rota.cli.terminal import echo
from rota.core.errors import RotaError

if TYPE_CHECKING:
    from rota.drivers.kubernetes.api.client import Api
    from rota.drivers.kubernetes.install.manifests import InstallOptions

Context = Annotated[
    str | None,
    typer.Option("--context", help="A context of the kubeconfig; the current one by default.", metavar="NAME"),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option("--kubeconfig", help="A kubeconfig; in a pod its own account is used without one.", metavar="FILE"),
]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="The namespace in which Rota runs.", metavar="NAME")]
Image = Annotated[
    str | None, typer.Option("--image", help="The image that holds Rota; by default this version's.", metavar="NAME")
]
DatabaseSecret = Annotated[
    str, typer.Option("--database-secret", help="A Secret with a database's URL under `url`.", metavar="NAME")
]
Replicas = Annotated[int, typer.Option("--replicas", help="How many replicas; one of them leads.", min=1, max=9)]
IngressHost = Annotated[
    str | None, typer.Option("--ingress-host", help="Show the dashboard under this host name.", metavar="HOST")
]
IngressClass = Annotated[str | None, typer.Option("--ingress-class", help="The Ingress' class.", metavar="NAME")]
TlsSecret = Annotated[
    str | None, typer.Option("--tls-secret", help="A Secret with the certificate of that host.", metavar="NAME")
]
Monitoring = Annotated[
    bool, typer.Option("--monitoring", help="Also what Prometheus' operator and Grafana read: rules, a dashboard.")
]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until all replicas are available.")]


class ManifestFormat(Enum):
    """The form of the manifests."""

    YAML = "yaml"
    HELM = "helm"
    KUSTOMIZE = "kustomize"


def install_commands(app: typer.Typer) -> None:
    """Add the commands of this module to `rota k8s`."""
    app.command("install")(install)
    app.command("upgrade")(upgrade)
    app.command("uninstall")(uninstall)
    app.command("manifests")(manifests)
    app.command("dispatch")(dispatch)


def install(
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    namespace: Namespace = "rota-system",
    image: Image = None,
    replicas: Replicas = 2,
    database_secret: DatabaseSecret = "rota-database",
    ingress_host: IngressHost = None,
    ingress_class: IngressClass = None,
    tls_secret: TlsSecret = None,
    monitoring: Monitoring = False,
    wait: Wait = True,
) -> None:
    """Install Rota in a cluster: namespace, types, rights, settings, two replicas, the admission webhook.

    Examples:

      rota k8s install --image registry.example/rota:1

      rota k8s install --ingress-host rota.example --tls-secret rota-tls --monitoring
    """
    from rota.drivers.kubernetes.install import apply

    options = _options(namespace, image, replicas, database_secret, ingress_host, ingress_class, tls_secret, monitoring)
    _change(context, kubeconfig, options, apply.install, wait)


def upgrade(
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    namespace: Namespace = "rota-system",
    image: Image = None,
    replicas: Replicas = 2,
    database_secret: DatabaseSecret = "rota-database",
    ingress_host: IngressHost = None,
    ingress_class: IngressClass = None,
    tls_secret: TlsSecret = None,
    monitoring: Monitoring = False,
    wait: Wait = True,
) -> None:
    """Bring an installed Rota to this version. Settings stay; what is no longer needed or asked for is deleted.

    Examples:

      rota k8s upgrade --image registry.example/rota:2
    """
    from rota.drivers.kubernetes.install import apply

    options = _options(namespace, image, replicas, database_secret, ingress_host, ingress_class, tls_secret, monitoring)
    _change(context, kubeconfig, options, apply.upgrade, wait)


def uninstall(
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    namespace: Namespace = "rota-system",
    purge: Annotated[
        bool, typer.Option("--purge", help="Also delete types with all Queues and PodGroups, settings, the namespace.")
    ] = False,
) -> None:
    """Remove Rota from a cluster. Running pods go on; waiting ones are no longer scheduled.

    Examples:

      rota k8s uninstall

      rota k8s uninstall --purge
    """
    need("kubernetes")
    from rota.drivers.kubernetes.install import apply

    async def work(api: Api) -> None:
        await apply.uninstall(api, namespace, echo, purge=purge)

    _with_api(context, kubeconfig, work)


def manifests(
    namespace: Namespace = "rota-system",
    image: Image = None,
    replicas: Replicas = 2,
    database_secret: DatabaseSecret = "rota-database",
    ingress_host: IngressHost = None,
    ingress_class: IngressClass = None,
    tls_secret: TlsSecret = None,
    monitoring: Monitoring = False,
    kubernetes: Annotated[
        str | None,
        typer.Option("--kubernetes", help="The cluster's release, if it is before 1.25.", metavar="VERSION"),
    ] = None,
    form: Annotated[ManifestFormat, typer.Option("--format", help="Objects, a Helm chart or a Kustomize base.")] = (
        ManifestFormat.YAML
    ),
    out: Annotated[
        Path | None, typer.Option("--out", help="Where the chart or the base is written.", metavar="DIR")
    ] = None,
) -> None:
    """Print what `rota k8s install` would create, or write it as a Helm chart or a Kustomize base.

    Examples:

      rota k8s manifests | kubectl apply -f -

      rota k8s manifests --image registry.example/rota:1 > rota.yaml

      rota k8s manifests --format helm --out chart
    """
    need("kubernetes")
    from dataclasses import replace

    from rota.drivers.kubernetes.install.chart import as_yaml, base_files, chart_files, write_files
    from rota.drivers.kubernetes.install.manifests import manifests as objects

    if form is not ManifestFormat.YAML:
        if out is None:
            raise RotaError(f"--format {form.value} writes several files; name a folder with --out")
        write_files(out, chart_files() if form is ManifestFormat.HELM else base_files())
        return
    options = _options(namespace, image, replicas, database_secret, ingress_host, ingress_class, tls_secret, monitoring)
    text = as_yaml(objects(replace(options, release=_release(kubernetes))))
    if out is not None:
        raise RotaError("--out is for --format helm and kustomize; redirect the output instead")
    echo(text, nl=False, lines=True)


def dispatch(
    file: Annotated[
        Path, typer.Argument(help="The hub and the clusters.", metavar="FILE", exists=True, dir_okay=False)
    ],
    log_format: Annotated[LogFormat, typer.Option("--log-format", help="How to log.")] = LogFormat.TEXT,
    log_level: Annotated[LogLevel, typer.Option("--log-level", help="How much to log.")] = LogLevel.INFO,
) -> None:
    """Send suspended Jobs of one cluster to the best of several; runs until it is told to stop (Ctrl-C).

    Examples:

      rota k8s dispatch clusters.yaml
    """
    need("kubernetes")
    from rota.drivers.kubernetes.dispatch.clusters_file import read_dispatch_file
    from rota.drivers.kubernetes.dispatch.dispatcher import Dispatcher

    found = read_dispatch_file(file)
    set_up(log_format, log_level)

    async def run() -> None:
        work = asyncio.create_task(Dispatcher(found).run())
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, work.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await work

    asyncio.run(run())


def _release(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    major, _, minor = text.removeprefix("v").partition(".")
    minor = minor.partition(".")[0]
    if not (major.isdecimal() and minor.isdecimal()):
        raise RotaError(f"--kubernetes is {text!r}; write it like 1.24")
    return int(major), int(minor)


def _options(
    namespace: str,
    image: str | None,
    replicas: int,
    database_secret: str,
    ingress_host: str | None,
    ingress_class: str | None,
    tls_secret: str | None,
    monitoring: bool,
) -> InstallOptions:
    need("kubernetes")
    from rota.drivers.kubernetes.install.manifests import IMAGE, InstallOptions

    if ingress_host is None and (ingress_class or tls_secret):
        raise RotaError("--ingress-class and --tls-secret are for an Ingress; give --ingress-host as well")
    return InstallOptions(
        namespace=namespace,
        image=image or IMAGE,
        replicas=replicas,
        database_secret=database_secret,
        ingress_host=ingress_host,
        ingress_class=ingress_class,
        tls_secret=tls_secret,
        monitoring=monitoring,
    )


def _change(
    context: str | None,
    kubeconfig: Path | None,
    options: InstallOptions,
    change: Callable[..., Awaitable[None]],
    wait: bool,
) -> None:
    from dataclasses import replace

    from rota.drivers.kubernetes.install import apply
    from rota.drivers.kubernetes.install.manifests import manifests as objects

    async def work(api: Api) -> None:
        release = await apply.release_of(api)
        await change(api, options.namespace, objects(replace(options, release=release)), echo)
        if wait:
            await apply.wait_until_available(api, options.namespace)
            echo("Rota is available")

    _with_api(context, kubeconfig, work)


def _with_api(context: str | None, kubeconfig: Path | None, work: Callable[[Any], Awaitable[None]]) -> None:
    from rota.drivers.kubernetes.api.client import Api
    from rota.drivers.kubernetes.api.connection import connect

    async def run() -> None:
        api = Api(connect(context, kubeconfig))
        try:
            await work(api)
        finally:
            await api.close()

    asyncio.run(run())
