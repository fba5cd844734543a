"""The reference documents every field of a job file, every setting and every endpoint."""

from __future__ import annotations

import re

from docs.pages import ROOT
from rota.api import cluster, estimates, jobs, logs, metrics, submit, system, truth
from rota.api.accounts import budgets, usage
from rota.api.admin import audit, reservations, tenants, tokens
from rota.api.alerts import routes as alert_routes
from rota.api.data import artefacts, data_sets, search, snapshots
from rota.api.data import templates as job_templates
from rota.api.gpu import routes as gpu_routes
from rota.api.identity import routes as logins
from rota.api.interactive import routes as session_routes
from rota.api.proxy import routes as proxy_routes
from rota.api.sweeps import routes as sweep_routes
from rota.files.job_shape import JobFile, ResourcesPart, RolePart
from rota.files.up_file import UpFile


def test_every_field_of_a_job_file_is_explained() -> None:
    page = (ROOT / "docs/reference/job-file.md").read_text(encoding="utf-8")
    fields = [field.alias or name for name, field in JobFile.model_fields.items()]
    fields += [*ResourcesPart.model_fields, *RolePart.model_fields]

    assert [field for field in fields if f"`{field}`" not in page] == []


def test_every_setting_is_explained() -> None:
    page = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")

    assert [field for field in UpFile.model_fields if f"`{field}`" not in page] == []


def test_every_endpoint_is_explained_and_no_other() -> None:
    page = (ROOT / "docs/reference/rest.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `((?:GET|POST|PUT|PATCH|DELETE) [^`]+)`", page, re.MULTILINE))
    routers = (
        submit.router,
        jobs.router,
        logs.router,
        metrics.router,
        gpu_routes.router,
        system.router,
        cluster.router,
        estimates.router,
        system.probes,
        tenants.router,
        reservations.router,
        tokens.router,
        audit.router,
        logins.router,
        truth.router,
        sweep_routes.router,
        artefacts.router,
        snapshots.router,
        data_sets.router,
        search.router,
        job_templates.router,
        usage.router,
        budgets.router,
        alert_routes.router,
        session_routes.router,
        proxy_routes.router,
    )
    known = {
        f"{method} {getattr(route, 'path')}"  # noqa: B009 - a base class without it is what the list is typed as
        for router in routers
        for route in router.routes
        for method in getattr(route, "methods", ())
    }

    assert documented == known
