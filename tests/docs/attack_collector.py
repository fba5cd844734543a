"""A plugin of pytest that writes down the collected tests that carry the marker `attack`.

`python -m pytest -p docs.attack_collector --collect-only -m attack FILE...` writes a JSON file to the path that
`ROTA_ATTACKS` names: for each test its file, name and documentation, and the arguments of its marker.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

_skipped: list[str] = []


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Remember the files that could not be collected here."""
    if report.outcome != "passed":
        _skipped.append(report.nodeid)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write what was collected."""
    found: list[dict[str, Any]] = []
    for item in session.items:
        marker = item.get_closest_marker("attack")
        if marker is None:
            continue
        module = item.getparent(pytest.Module)
        doc = "" if module is None else str(module.obj.__doc__ or "")
        told = _arguments(*marker.args, **marker.kwargs)
        file, _, name = item.nodeid.partition("::")
        found.append({"file": file, "test": name, "about": doc.strip().splitlines()[0] if doc else "", **told})
    text = json.dumps({"attacks": found, "skipped": _skipped})
    Path(os.environ["ROTA_ATTACKS"]).write_text(text, encoding="utf-8")


def _arguments(what: str, stopped_by: str) -> dict[str, str]:
    """The arguments of the marker; a marker with others is an error."""
    return {"what": what, "stopped_by": stopped_by}
