"""What is installed: manifests, the chart and the base agree, alerts and dashboard name metrics that exist."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.kubernetes.bed import binary
from rota.cli.main import status
from rota.drivers.kubernetes.api.rights import cluster_rules, own_rules, queue_admin_rules, user_rules
from rota.drivers.kubernetes.install.chart import KEPT, VALUES, base_files, chart_files, write_files
from rota.drivers.kubernetes.install.manifests import InstallOptions, manifests
from rota.files.alerts.monitoring import MonitoredPlace, grafana_dashboard, prometheus_rules

Json = dict[str, Any]
ROOT = Path(__file__).parent.parent.parent.parent
CHART, BASE = ROOT / "deploy" / "chart", ROOT / "deploy" / "kustomize"
EVERYTHING = InstallOptions(ingress_host="rota.example", ingress_class="nginx", tls_secret="rota-tls", monitoring=True)


def by_name(values: list[Json]) -> dict[tuple[str, str], Json]:
    return {(value["kind"], value["metadata"]["name"]): value for value in values}


def container_of(options: InstallOptions) -> Json:
    found: Json = by_name(manifests(options))[("Deployment", "rota")]["spec"]["template"]["spec"]["containers"][0]
    return found


def test_manifests_ask_for_nothing_that_is_not_needed() -> None:
    container = container_of(InstallOptions(namespace="ns", image="image:1"))

    for rule in (*cluster_rules(), *own_rules(), *user_rules(), *queue_admin_rules()):
        assert "*" not in (*rule["verbs"], *rule["resources"], *rule["apiGroups"])
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert (container["command"], container["args"][:4]) == (["rota"], ["k8s", "run", "--namespace", "ns"])
    assert {rule["resources"][0] for rule in user_rules()} == {"queues", "podgroups"}
    assert all(rule["resources"] != ["queues"] or "update" not in rule["verbs"] for rule in user_rules())


def test_database_comes_from_a_secret_that_may_be_missing() -> None:
    secret = container_of(InstallOptions(database_secret="keys"))["env"][-1]

    assert secret["name"] == "ROTA_DATABASE"
    assert secret["valueFrom"] == {"secretKeyRef": {"name": "keys", "key": "url", "optional": True}}


def test_webhooks_are_open_until_the_webhook_itself_closes_them() -> None:
    for name in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"):
        for webhook in by_name(manifests(InstallOptions()))[(name, "rota")]["webhooks"]:
            assert webhook["failurePolicy"] == "Ignore"
            assert "caBundle" not in webhook["clientConfig"]


# -- the chart and the base -------------------------------------------------------------------------------------------


def test_committed_files_are_those_that_are_made() -> None:
    """`make deploy` writes them."""
    for folder, made in ((CHART, chart_files()), (BASE, base_files())):
        found = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
        assert found == made


def test_command_writes_the_same_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for form, folder in (("helm", CHART), ("kustomize", BASE)):
        assert status(["k8s", "manifests", "--format", form, "--out", str(tmp_path / form)]) == 0
        for path in folder.rglob("*.yaml"):
            assert (tmp_path / form / path.relative_to(folder)).read_text() == path.read_text()
    assert status(["k8s", "manifests", "--format", "helm"]) == 2
    assert "name a folder with --out" in capsys.readouterr().err
    assert status(["k8s", "manifests", "--ingress-host", "rota.example"]) == 0
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    assert printed == manifests(InstallOptions(ingress_host="rota.example"))


HOLE = re.compile(r"\{\{-? (.+?) \}\}")


def render(values: Json, namespace: str) -> str:
    """The chart rendered with the little of Helm that it uses: values, the namespace, `quote`, and `if` over a file."""

    def value(match: re.Match[str]) -> str:
        path, _, how = match.group(1).partition(" | ")
        if path == "`{{`":
            return "{{"
        found: Any = {"Values": values, "Release": {"Namespace": namespace}}
        for name in path.lstrip(".").split("."):
            found = found[name]
        return json.dumps(found) if how == "quote" else str(found)

    made = []
    for path, text in chart_files().items():
        if not path.startswith("templates/"):
            continue
        begins = re.match(r"\{\{- if \.Values\.([a-z.]+) \}\}\n", text)
        if begins is not None:
            switch: Any = values
            for name in begins.group(1).split("."):
                switch = switch[name]
            if not switch:
                continue
            text = text[begins.end() :].removesuffix("{{- end }}\n")
        made.append(HOLE.sub(value, text))
    return "---\n".join(made)


def with_go(values: Json, namespace: str, tmp_path: Path) -> str:
    """The same by Go's own template engine, which Helm is made of."""
    go = os.environ.get("ROTA_GO") or shutil.which("go")
    if go is None:
        pytest.skip("there is no Go compiler to render the chart with; name one in ROTA_GO")
    program = Path(__file__).parent / "render_chart.go"
    write_files(tmp_path / "chart", chart_files())
    (tmp_path / "values.json").write_text(json.dumps(values))
    command = [go, "run", str(program), str(tmp_path / "chart" / "templates"), str(tmp_path / "values.json"), namespace]
    env = {**os.environ, "GOCACHE": os.environ.get("GOCACHE", str(tmp_path / "cache")), "GOTOOLCHAIN": "local"}
    done = subprocess.run(command, capture_output=True, text=True, env={**env, "GO111MODULE": "off"}, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def unkept(value: Json) -> Json:
    """An object without the annotation that only Helm needs."""
    meta = dict(value["metadata"])
    if meta.get("annotations") == {KEPT: "keep"}:
        del meta["annotations"]
    return {**value, "metadata": meta}


RENDERERS: dict[str, Callable[[Json, str, Path], str]] = {
    "subset": lambda values, namespace, folder: render(values, namespace),
    "go": with_go,
}


@pytest.mark.parametrize("renderer", RENDERERS)
def test_chart_and_manifests_agree(renderer: str, tmp_path: Path) -> None:
    def rendered(values: Json, namespace: str) -> dict[tuple[str, str], Json]:
        text = RENDERERS[renderer](values, namespace, tmp_path)
        return by_name([unkept(value) for value in yaml.safe_load_all(text) if value])

    def wanted(options: InstallOptions) -> dict[tuple[str, str], Json]:
        return by_name([value for value in manifests(options) if value["kind"] != "Namespace"])

    assert rendered(VALUES, "rota-system") == wanted(InstallOptions())
    full = {**VALUES, "ingress": {**VALUES["ingress"], "enabled": True}, "monitoring": {"enabled": True}}
    assert rendered(full, "rota-system") == wanted(EVERYTHING)
    other = {**full, "image": "a/b:1", "replicas": 3, "databaseSecret": "db", "settings": 'policy: las\n# "x"\n'}
    assert rendered(other, "elsewhere") == wanted(
        InstallOptions(
            namespace="elsewhere",
            image="a/b:1",
            replicas=3,
            database_secret="db",
            settings='policy: las\n# "x"\n',
            ingress_host="rota.example",
            ingress_class="nginx",
            tls_secret="rota-tls",
            monitoring=True,
        )
    )


@pytest.mark.slow
def test_base_and_manifests_agree() -> None:
    kubectl = binary("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl to build the base with")
    built = subprocess.run([str(kubectl), "kustomize", str(BASE)], capture_output=True, text=True, timeout=60)
    assert built.returncode == 0, built.stderr
    assert by_name(list(yaml.safe_load_all(built.stdout))) == by_name(manifests(InstallOptions()))


# -- monitoring -------------------------------------------------------------------------------------------------------


def exported() -> set[str]:
    """Names of metrics in the code that exports them."""
    source = ROOT / "src" / "rota" / "api"
    text = (source / "metrics.py").read_text() + (source / "serve_cluster.py").read_text()
    found = set(re.findall(r"\"(rota_[a-z_]+)\"", text))
    return found | {f"{name}_total" for name in found} | {f"{name}_bucket" for name in found}


def test_alerts_and_dashboard_name_metrics_that_exist() -> None:
    rules = [rule for group in prometheus_rules(MonitoredPlace.KUBERNETES)["groups"] for rule in group["rules"]]
    panels = grafana_dashboard(MonitoredPlace.KUBERNETES)["panels"]
    asked = [rule["expr"] for rule in rules] + [target["expr"] for panel in panels for target in panel["targets"]]

    assert len(rules) == len({rule["alert"] for rule in rules}) >= 6
    assert all(rule["annotations"]["summary"] and rule["labels"]["severity"] for rule in rules)
    named = {name for expr in asked for name in re.findall(r"rota_[a-z_]+", expr)}
    assert named <= exported()
    assert len({panel["id"] for panel in panels}) == len(panels)
