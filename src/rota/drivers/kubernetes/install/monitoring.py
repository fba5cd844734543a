"""Objects for Prometheus' operator and for Grafana: a scrape target, alert rules, a dashboard."""

from __future__ import annotations

import json
from typing import Any

from rota.drivers.kubernetes.api.rights import NAME
from rota.files.alerts.monitoring import MonitoredPlace, grafana_dashboard, prometheus_rules

Json = dict[str, Any]
TOKEN_SECRET = "rota-metrics"
"""A Secret with a viewer's token under `token`, with which Prometheus logs in."""


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
        {"kind": "PrometheusRule", **operator, "spec": prometheus_rules(MonitoredPlace.KUBERNETES)},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": shown,
            "data": {"rota.json": json.dumps(grafana_dashboard(MonitoredPlace.KUBERNETES), indent=1) + "\n"},
        },
    ]
