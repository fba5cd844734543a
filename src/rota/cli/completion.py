"""What the shell completes: names and ids that the running manager knows, and names of policies."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import typer

from rota.core.errors import RotaError, Unavailable

MOST_SHOWN = 100
Names = Callable[[typer.Context, str], list[tuple[str, str]]]


def _live(rows: Callable[[Any], Iterable[dict[str, Any]]], key: str, about: Callable[[dict[str, Any]], str]) -> Names:
    """Return a completion from what the manager lists; it is empty where none answers, since a shell waits.

    On Kubernetes and Slurm there are jobs only.
    """

    def complete(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
        from rota.cli.manager.connect import client_for

        with contextlib.suppress(RotaError, Unavailable, OSError, AttributeError):
            found = {row[key]: about(row) for row in rows(client_for(ctx.params.get("server")))}
            fitting = ((name, text) for name, text in found.items() if name.startswith(incomplete))
            return list(islice(fitting, MOST_SHOWN))
        return []

    return complete


def _job(job: dict[str, Any]) -> str:
    return f"{job['name']}, {job['state']}"


job_ids = _live(lambda client: client.jobs(limit=MOST_SHOWN), "id", _job)
"""Unfinished jobs, newest first."""
all_job_ids = _live(lambda client: client.jobs(all=True, limit=MOST_SHOWN), "id", _job)
sweep_ids = _live(lambda client: client.sweeps(all=True), "id", lambda sweep: f"{sweep['name']}, {sweep['state']}")
template_names = _live(lambda client: client.templates(), "name", lambda each: each["description"])
data_set_names = _live(lambda client: client.data_sets(), "name", lambda each: each["about"] or each["path"])
tenant_names = _live(lambda client: client.tenants(), "tenant", lambda tenant: "")
node_names = _live(lambda client: client.nodes(), "id", lambda node: f"{node['type']}, {node['state']}")
alert_ids = _live(lambda client: client.alerts(), "id", lambda alert: f"{alert['rule']}, {alert['state']}")
alert_rules = _live(lambda client: client.alert_rules(), "name", lambda rule: "")
budget_names = _live(lambda client: client.budgets(), "name", lambda budget: f"of {budget['tenant']}")


def policy_names(incomplete: str) -> list[str]:
    """Return the policies by name."""
    from rota.policies import names

    return [name for name in names() if name.startswith(incomplete)]


def file_kinds(incomplete: str) -> list[tuple[str, str]]:
    """Return the kinds of files that have schemas."""
    from rota.cli.file_schemas import KINDS

    return [(kind.name, kind.about) for kind in KINDS if kind.name.startswith(incomplete)]


def job_events(incomplete: str) -> list[str]:
    """Return the events of which jobs send messages, the last of a list with commas being completed."""
    given, comma, last = incomplete.rpartition(",")
    words = [word for word in ("start", "end", "fail", "preempted") if word not in given.split(",")]
    return [f"{given}{comma}{word}" for word in words if word.startswith(last)]
