"""The Helm chart and the Kustomize base, written from the manifests.

The chart's templates are the manifests with placeholders in them, and whole files that a value switches on. They use
nothing of Helm but `.Values`, `.Release.Namespace`, `quote` and `if`, so that other renderers can do without Helm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from rota import __version__
from rota.drivers.kubernetes.install.manifests import IMAGE, SETTINGS, InstallOptions, Part, parts

Json = dict[str, Any]
CHART, BASE = "chart", "kustomize"
KEPT = "helm.sh/resource-policy"
_HOLE = re.compile(r"'?@@(.+?)@@'?")
VALUES: Json = {
    "image": IMAGE,
    "replicas": 2,
    "databaseSecret": "rota-database",
    "settings": SETTINGS,
    "ingress": {"enabled": False, "host": "rota.example", "className": "nginx", "tlsSecret": "rota-tls"},
    "monitoring": {"enabled": False},
}
_VALUES_HEAD = """\
# image: the image that holds Rota; see the Containerfile.
# databaseSecret: a Secret with the URL of a PostgreSQL under `url`; without one each replica keeps its own records.
# settings: rota.yaml of the ConfigMap, as docs/reference/kubernetes.md describes it.
# ingress: the dashboard and REST, which ask for a login. monitoring: objects for Prometheus' operator and Grafana.
"""


class _PlainDumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def as_yaml(values: Iterable[Json]) -> str:
    """Return objects as YAML documents."""
    return yaml.dump_all(list(values), Dumper=_PlainDumper, sort_keys=False, width=120)


def chart_files() -> dict[str, str]:
    """Return the files of the Helm chart by path."""
    options = InstallOptions(
        namespace="@@.Release.Namespace@@",
        image="@@.Values.image | quote@@",
        replicas="@@.Values.replicas@@",
        database_secret="@@.Values.databaseSecret | quote@@",
        settings="@@.Values.settings | quote@@",
        ingress_host="@@.Values.ingress.host | quote@@",
        ingress_class="@@.Values.ingress.className | quote@@",
        tls_secret="@@.Values.ingress.tlsSecret | quote@@",
        monitoring=True,
    )
    about = {
        "apiVersion": "v2",
        "name": "rota",
        "description": "Rota, a scheduler of gangs of pods on accelerators.",
        "type": "application",
        "version": __version__,
        "appVersion": __version__,
        "kubeVersion": ">=1.25.0-0",
    }
    found = {"Chart.yaml": as_yaml([about]), "values.yaml": _VALUES_HEAD + as_yaml([VALUES])}
    for part in parts(options):
        if part.name != "namespace":  # Helm makes it: --create-namespace
            found[f"templates/{part.name}.yaml"] = _template(part)
    return found


def base_files() -> dict[str, str]:
    """Return the files of the Kustomize base by path."""
    made = {f"{part.name}.yaml": as_yaml(part.objects) for part in parts(InstallOptions())}
    about = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(made),
    }
    return {"kustomization.yaml": as_yaml([about]), **made}


def write_files(folder: Path, found: dict[str, str]) -> None:
    """Write files below a folder."""
    for name, text in found.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _template(part: Part) -> str:
    objects = [_kept(value) for value in part.objects] if part.name == "crds" else list(part.objects)
    # What looks like a template in the data, such as the legends of the dashboard, is not one.
    text = as_yaml(objects).replace("{{", "@@`{{`@@")
    text = _HOLE.sub(lambda match: "{{ " + match.group(1) + " }}", text)
    return text if part.only_if is None else f"{{{{- if .Values.{part.only_if} }}}}\n{text}{{{{- end }}}}\n"


def _kept(value: Json) -> Json:
    """Return a definition that Helm leaves behind, so that uninstalling deletes no Queue."""
    meta = value["metadata"]
    return {**value, "metadata": {**meta, "annotations": {**(meta.get("annotations") or {}), KEPT: "keep"}}}
