"""A real manager on this machine's GPU, and scripts of unmodified PyTorch for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from gpu_rows.scripts import FILL, FOULS, TRAIN, WORK
from managers import FINAL, Manager, eventually

ROOT = Path(__file__).resolve().parents[2]
Json = dict[str, Any]
PASSED = ("PYTHONPATH", "LD_LIBRARY_PATH", "CUDA_HOME", "PATH")
"""Variables that trainings need and a manager does not pass on by itself."""
PAUSE_S = 0.25
"""Points further apart than this have a pause between them; a slice takes 0.3 s."""


class Lab:
    """A manager with settings and a policy, in a folder."""

    def __init__(self, folder: Path, settings: str = "gpu: {}\n", policy: str = "priority") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        scripts = {"train.py": TRAIN, "fill.py": FILL, "work.py": WORK, "fouls.py": FOULS, "rota.yaml": settings}
        for name, text in scripts.items():
            (folder / name).write_text(text, encoding="utf-8")
        options = ("--policy", policy, "--config", str(folder / "rota.yaml"), "--log-level", "info")
        self.manager = Manager(folder, *options).start(within_s=120.0)
        self.env = {name: os.environ[name] for name in PASSED if name in os.environ}
        self.env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "src"), self.env.get("PYTHONPATH")]))
        self.env["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

    def submit(self, script: str, *args: object, priority: int = 0, class_: str = "", **resources: Any) -> str:
        """Submit a script as a job on the GPU."""
        run = [sys.executable, str(self.folder / script), *map(str, args)]
        file: Json = {"run": run, "resources": {"gpus": 1, **resources}, "env": self.env, "workdir": str(self.folder)}
        file |= {"class": class_} if class_ else {"priority": priority}
        return self.manager.client.submit(file)[0]

    def ready(self, job: str, within_s: float = 120.0) -> None:
        """Wait until a job can be suspended."""
        eventually(lambda: self.manager.client.job(job)["if_preempted"] == "resumes", within_s=within_s, every_s=0.1)

    def wait(self, job: str, *states: str, within_s: float = 240.0) -> Json:
        """Wait for a job's state."""
        return self.manager.wait(job, *states, within_s=within_s)

    def why(self, job: str) -> str:
        """Return what `rota why` says."""
        return str(self.manager.client.why(job)["reason"]["sentence"])

    def state(self, job: str) -> Json:
        """What the job's supervisor wrote last."""
        folders = sorted(self.manager.home.glob(f"runs/{job}/[0-9]*"), key=lambda path: int(path.name))
        return dict(json.loads((folders[-1] / "0" / "state.json").read_text()))

    def process(self, job: str) -> tuple[int, int]:
        """The process of the job's last attempt, and when it began: another one has started over."""
        state = self.state(job)
        return int(state["pid"]), int(state["pid_start"])

    def cancel_all(self) -> None:
        """Cancel what has not ended, after a row that failed."""
        for job in self.manager.client.jobs():
            if job["state"] not in FINAL:
                self.manager.client.act(job["id"], "cancel")

    def end(self, *kept: Path) -> None:
        """End the manager and what it runs; its log and other files are kept where the caller wants files."""
        self.manager.clean_up()
        if out := os.environ.get("OUT"):
            with Path(out, "managers.log").open("a") as log:
                log.write(f"== {self.folder.name}\n{(self.folder / 'up.log').read_text()}")
            with Path(out, "points.txt").open("a") as points:
                for path in (each for each in kept if each.exists()):
                    points.write(f"== {self.folder.name} {path.name}\n{path.read_text()}")


def gpu_processes() -> set[int]:
    """The processes that hold GPU memory."""
    command = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    return {int(line) for line in subprocess.run(command, capture_output=True, text=True).stdout.split()}


def points_of(path: Path) -> list[tuple[float, int]]:
    """When how many steps were done, as a script noted."""
    if not path.exists():
        return []
    lines = [line.split() for line in path.read_text().splitlines()]
    return [(float(line[0]), int(line[1])) for line in lines if len(line) == 2]


def rate_of(points: Sequence[tuple[float, int]], from_s: float = -1e18, until_s: float = 1e18) -> float:
    """Steps in a second, in a part of the time."""
    inside = [point for point in points if from_s <= point[0] <= until_s]
    if len(inside) < 2:
        return 0.0
    return (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])


def together(one: Path, other: Path, *, warm_s: float = 0.5) -> tuple[float, float]:
    """The rates of two scripts in the time in which both ran, without its ends."""
    first, second = points_of(one), points_of(other)
    if not first or not second:
        return 0.0, 0.0
    from_s, until_s = max(first[0][0], second[0][0]) + warm_s, min(first[-1][0], second[-1][0]) - 0.2
    return rate_of(first, from_s, until_s), rate_of(second, from_s, until_s)


def over_whole_turns(one: Path, other: Path, *, warm_s: float) -> tuple[float, float]:
    """The rates of two time-sliced scripts, from one pause of the first to another, so that all cycles are whole."""
    first, second = points_of(one), points_of(other)
    from_s = max((points[0][0] for points in (first, second) if points), default=0.0) + warm_s
    until_s = min((points[-1][0] for points in (first, second) if points), default=0.0)
    pauses = [
        point for point, after in pairwise(first) if after[0] - point[0] > PAUSE_S and from_s <= point[0] <= until_s
    ]
    if len(pauses) < 2:
        return together(one, other, warm_s=warm_s)
    (begun_s, begun), (ended_s, ended) = pauses[0], pauses[-1]
    steps = [max((done for at_s, done in second if at_s <= moment), default=0) for moment in (begun_s, ended_s)]
    return (ended - begun) / (ended_s - begun_s), (steps[1] - steps[0]) / (ended_s - begun_s)
