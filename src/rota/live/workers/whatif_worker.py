"""Worker process of what-ifs: reads the question in a folder and prints the answer."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rota.core.errors import RotaError
from rota.drivers.simulator.study import Setting, oversized, simulate
from rota.live.workers.whatif import SCENARIOS, setting_with
from rota.report.metrics import measure
from rota.report.series import cdf
from rota.scenario import decode_scenario
from rota.traces.formats import read_trace
from rota.traces.workload import Workload

Json = dict[str, Any]
NICE = 10
POINTS = 200


def work() -> None:
    """Print the answer to the question in a folder, or its error, as JSON."""
    os.nice(NICE)
    folder = Path(sys.argv[1])
    try:
        answer = _answer(folder)
    except RotaError as error:
        answer = {"error": str(error).replace(f"{folder}/journal.jsonl: ", "")}
    sys.stdout.write(json.dumps(answer))


def _answer(folder: Path) -> Json:
    scenarios = [decode_scenario(value) for value in json.loads((folder / SCENARIOS).read_text(encoding="utf-8"))]
    settings = [setting_with(scenario) for scenario in scenarios]
    workload = read_trace(folder / "journal.jsonl")
    misfits = {job.id for setting in settings for job, _ in oversized(workload.submissions, setting)}
    kept = tuple(each for each in workload.submissions if each.job.id not in misfits)
    if not kept:
        raise RotaError("no job of these days would fit")
    fitting = replace(workload, submissions=kept)
    return {
        "jobs": len(kept),
        "left_out": workload.left_out + len(misfits),
        "sides": [
            _result(fitting, scenario.policy, setting) for scenario, setting in zip(scenarios, settings, strict=True)
        ],
    }


def _result(workload: Workload, policy: str, setting: Setting) -> Json:
    history = simulate(workload, policy, setting).history
    jct_s = np.array(
        [row.end_s - row.submit_s for row in history.jobs if row.end_s is not None and row.start_s is not None]
    )
    times_s, shares = cdf(jct_s, POINTS)
    return {
        "policy": policy,
        "devices": setting.cluster.devices,
        "metrics": measure(history).encode(),
        "jct_s": [[float(at_s), float(share)] for at_s, share in zip(times_s, shares, strict=True)],
    }
