"""Objects for Prometheus' operator and for Grafana: a scrape target, alert rules, a dashboard."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from rota.drivers.kubernetes.api.rights import NAME
from rota.files.yaml_input import parse_yaml

Json = dict[str, Any]
FOLDER = "rota.drivers.kubernetes.install.data"
TOKEN_SECRET = "rota-metrics"
"""A Secret with a viewer's token under `token`, with which Prometheus logs in."""


def dashboard() -> Json:
    """Return the Grafana dashboard."""
    found: Json = json.loads((files(FOLDER) / "dashboard.json").read_text(encoding="utf-8"))
    return found


def alert_rules() -> Json:
    """Return the groups of alert rules, in the form of a rule file of Prometheus."""
    found = parse_yaml((files(FOLDER) / "alerts.yaml").read_text(encoding="utf-8"), "alerts.yaml")
    assert isinstance(found, dict), "the rules are a mapping"
    return found


def monitoring(namespace: str) -> list[Json]:
    """Return the objects of a Rota in this namespace."""
    endpoint = {
        "port": "http",
        "path": "/metrics",
        "interval": "30s",
        "bearerTokenSecret": {"name": TOKEN_SECRET, "key": "token"},
    }
    selector = {"matchLabels": {"app.kubernetes.io/name": NAME}}
    shown = {"name": f"{NAME}-dashboard", "namespace": namespace, "labels": {"grafana_dashboard": "1"}}
    meta = {"name": NAME, "namespace": namespace}
    operator = {"apiVersion": "monitoring.coreos.com/v1", "metadata": meta}
    return [
        {"kind": "ServiceMonitor", **operator, "spec": {"selector": selector, "endpoints": [endpoint]}},
        {"kind": "PrometheusRule", **operator, "spec": alert_rules()},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": shown,
            "data": {"rota.json": json.dumps(dashboard(), indent=1) + "\n"},
        },
    ]
