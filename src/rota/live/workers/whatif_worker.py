"""Worker process of what-ifs: reads the question in a folder and prints the answer."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from rota.core.errors import RotaError
from rota.drivers.simulator.study import Setting, oversized, simulate
from rota.live.workers.whatif import setting_of
from rota.report.metrics import measure
from rota.report.series import cdf
from rota.traces.formats import read_trace
from rota.traces.workload import Workload

Json = dict[str, Any]
NICE = 10
POINTS = 200


def work() -> None:
    """Answer the question in a folder: JSON to the standard output, an error as such."""
    os.nice(NICE)
    folder = Path(sys.argv[1])
    try:
        answer = _answer(folder)
    except RotaError as error:
        answer = {"error": str(error).replace(f"{folder}/journal.jsonl: ", "")}
    sys.stdout.write(json.dumps(answer))


def _answer(folder: Path) -> Json:
    settings = [(side["policy"], setting_of(side)) for side in json.loads((folder / "sides.json").read_text())]
    workload = read_trace(folder / "journal.jsonl")
    misfits = {job.id for _, setting in settings for job, _ in oversized(workload.submissions, setting)}
    kept = tuple(each for each in workload.submissions if each.job.id not in misfits)
    if not kept:
        raise RotaError("no job of these days would fit")
    fitting = replace(workload, submissions=kept)
    return {
        "jobs": len(kept),
        "left_out": workload.left_out + len(misfits),
        "sides": [_fared(fitting, policy, setting) for policy, setting in settings],
    }


def _fared(workload: Workload, policy: str, setting: Setting) -> Json:
    history = simulate(workload, policy, setting).history
    jct_s = np.array(
        [row.end_s - row.submit_s for row in history.jobs if row.end_s is not None and row.start_s is not None]
    )
    times_s, parts = cdf(jct_s, POINTS)
    return {
        "policy": policy,
        "devices": setting.cluster.devices,
        "metrics": asdict(measure(history)),
        "jct_s": [[float(at_s), float(part)] for at_s, part in zip(times_s, parts, strict=True)],
    }
