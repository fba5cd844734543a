"""Parts of Rota that an installation may lack, and how to install each.

The distribution `rota` brings the parts `sim` and `server`; `rota-slim` brings none unless asked. Modules are imported
when they are needed, so what lacks a part says so here, in one line, and everything else works.
"""

from __future__ import annotations

import importlib.util

from rota.core.errors import RotaError

_EXTRAS = {
    "sim": ("highspy", "jinja2", "plotly", "polars", "scipy"),
    "server": (
        *("alembic", "cloudpickle", "cryptography", "fastapi", "httptools", "nicegui", "prometheus_client"),
        *("pynvml", "sqlalchemy", "starlette", "uvicorn", "uvloop"),
    ),
    "kubernetes": ("aiohttp", "orjson"),
    "oidc": ("authlib", "httpx"),
    "postgresql": ("psycopg",),
    "s3": ("s3fs",),
    "gcs": ("gcsfs",),
    "azure": ("adlfs",),
    "buckets": ("fsspec",),
    "figures": ("matplotlib",),
    "estimate": ("sklearn",),
    "learn": ("gymnasium", "torch"),
}
"""The modules that each extra brings."""


def way_to(extra: str) -> str:
    """How to install an extra."""
    if extra in ("sim", "server"):
        return f"pip install 'rota-slim[{extra}]', or rota for all"
    return f"pip install 'rota[{extra}]'"


def explained(error: ModuleNotFoundError) -> str | None:
    """The line about a module that is not installed; None if no extra brings it."""
    module = (error.name or "").partition(".")[0]
    for extra, modules in _EXTRAS.items():
        if module in modules:
            return f"this needs {module}, which is not installed; {way_to(extra)}"
    return None


def need(extra: str) -> None:
    """Refuse what needs an extra that is not installed."""
    for module in _EXTRAS[extra]:
        if importlib.util.find_spec(module) is None:
            raise RotaError(f"this needs {module}, which is not installed; {way_to(extra)}")


def has(extra: str) -> bool:
    """Whether an extra is installed."""
    return all(importlib.util.find_spec(module) is not None for module in _EXTRAS[extra])
