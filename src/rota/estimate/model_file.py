"""File format of an estimator: the runs and the measured errors, as JSON. Nothing in it is executed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError
from rota.estimate.cross_validation import Spread, Trust
from rota.estimate.estimator import Estimator
from rota.estimate.observations import LABELS, Observation

FORM = "rota estimator 2"


def write_estimator(estimator: Estimator, path: Path) -> None:
    """Write an estimator atomically."""
    runs = [{"attributes": dict(run.attributes), "labels": dict(run.labels)} for run in estimator.runs]
    trust = {label: asdict(known) for label, known in estimator.trust.items()}
    path.write_text(json.dumps({"form": FORM, "trust": trust, "runs": runs}), encoding="utf-8")


def read_estimator(path: Path) -> Estimator:
    """Read an estimator; refuse any other file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value["form"] != FORM:
            raise ValueError("another format")
        trust = {_label(label): _trust(known) for label, known in value["trust"].items()}
        runs = [_run(each) for each in value["runs"]]
    except FileNotFoundError:
        raise RotaError(f"{path}: there is no such file; create it with `rota estimate train`") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RotaError(f"{path}: not an estimator; create one with `rota estimate train`") from error
    return Estimator(runs, trust)


def _label(name: str) -> str:
    if name not in LABELS:
        raise ValueError(name)
    return name


def _trust(value: Mapping[str, Any]) -> Trust:
    errors = {str(kind): float(error) for kind, error in value["errors"].items()}
    return Trust(
        runs=int(value["runs"]),
        reach=float(value["reach"]),
        errors=errors,
        unseen=_spread(value["unseen"]),
        uncounted=_spread(value["uncounted"]),
    )


def _spread(value: Mapping[str, Any] | None) -> Spread | None:
    if value is None:
        return None
    return Spread(reach=float(value["reach"]), error=None if value["error"] is None else float(value["error"]))


def _run(value: Mapping[str, Any]) -> Observation:
    attributes = {
        str(name): float(each) if isinstance(each, int | float) else str(each)
        for name, each in value["attributes"].items()
    }
    return Observation(attributes=attributes, labels={name: float(each) for name, each in value["labels"].items()})
