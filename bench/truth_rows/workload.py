"""Random jobs, and the script that stands for a training: it sleeps, and saves what is left when it is stopped."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = dict[str, Any]
DEVICES = 8
KINDS = {"bert": 4.0, "resnet": 6.0, "gpt": 9.0, "vit": 12.0, "unet": 18.0}
"""Names of jobs, with the median of their lengths in seconds."""
SPREAD = 0.25
"""The spread of lengths of one name, of their logarithm."""
DECLARED_BIAS, DECLARED_SPREAD = 1.2, 0.2
SIZES = ((1, 5), (2, 3), (4, 2), (8, 1))
"""Devices of a job, and how often."""
PRIORITIES = (0, 0, 0, 50, 100)
LOAD = 2.5
TASK = """#!/bin/sh
# usage: task WORK_MS saves|restarts: sleeps WORK_MS / tasks; with `saves`, continues where it was stopped
left=$1
file=$ROTA_RUN_DIR/left
if [ "$2" = saves ] && [ -f "$file" ]; then left=$(cat "$file"); fi
begun=$(date +%s%3N)
stop() {
  kill "$sleeper" 2>/dev/null
  if [ "$2" = saves ] && [ "$ROTA_RANK" = 0 ]; then
    echo $((left - ($(date +%s%3N) - begun) * size)) > "$file"
  fi
  exit 143
}
size=1
if [ "$3" = elastic ]; then size=$ROTA_TASKS; fi
trap "stop $1 $2" TERM
ms=$((left / size))
if [ "$ms" -lt 1 ]; then exit 0; fi
sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))" &
sleeper=$!
wait "$sleeper"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedJob:
    """A job file, and when it is submitted, in seconds from the beginning."""

    at_s: float
    length_s: float
    gpus: int
    name: str
    priority: int
    saves: bool
    estimate_s: float | None


def random_jobs(jobs: int, *, declared: bool, scale: float, seed: int) -> list[TimedJob]:
    """Return jobs that arrive at random, more quickly than the devices can serve them, so that most wait."""
    rng = random.Random(seed)
    made, at_s = [], 0.0
    sizes, weights = zip(*SIZES, strict=True)
    mean_gpus = sum(size * weight for size, weight in SIZES) / sum(weights)
    mean_s = scale * sum(KINDS.values()) / len(KINDS) * math.exp(SPREAD**2 / 2)
    gap_s = mean_gpus * mean_s / (DEVICES * LOAD)
    for _ in range(jobs):
        at_s += rng.expovariate(1.0 / gap_s)
        name = rng.choice(list(KINDS))
        length_s = scale * KINDS[name] * math.exp(rng.gauss(0.0, SPREAD))
        off = DECLARED_BIAS * math.exp(rng.gauss(0.0, DECLARED_SPREAD))
        made.append(
            TimedJob(
                at_s=at_s,
                length_s=length_s,
                gpus=rng.choices(sizes, weights)[0],
                name=name,
                priority=rng.choice(PRIORITIES),
                saves=rng.random() < 0.5,
                estimate_s=length_s * off if declared else None,
            )
        )
    return made


def job_file(job: TimedJob, script: Path, *, elastic: bool) -> Json:
    """Return the job file of a job that runs the script."""
    saves = "saves" if job.saves or elastic else "restarts"
    words = ["/bin/sh", str(script), str(round(1000 * job.length_s * (job.gpus if elastic else 1))), saves]
    file: Json = {"name": job.name, "priority": job.priority}
    if elastic:
        file |= {"elastic": {"min": 1, "max": job.gpus}, "resources": {"gpus": 1}}
        words.append("elastic")
    else:
        file |= {"workers": max(job.gpus // 4, 1), "resources": {"gpus": min(job.gpus, 4)}}
    if saves == "saves":
        file["checkpoint"] = {"grace": "10s"}
    if job.estimate_s is not None:
        file["estimate"] = round(job.estimate_s, 3)
    return {**file, "run": words}
