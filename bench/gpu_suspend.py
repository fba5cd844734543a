"""What preemption costs on a real GPU: unmodified PyTorch trainings under a real manager, suspended and resumed.

    python bench/gpu_suspend.py [ROW ...]

Rows: identical, rates, large, turns, killed. Prints a table in Markdown, a line for each claim.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

from managers import FINAL, Manager, eventually
from rota.drivers.local.task_runner.cuda_checkpoint import CudaCheckpoint

Json = dict[str, Any]
GIB = 2**30
TRAIN = """
import hashlib, sys
import torch

steps, path = int(sys.argv[1]), sys.argv[2]
torch.manual_seed(7)
torch.use_deterministic_algorithms(True)
torch.backends.cuda.enable_flash_sdp(False)
torch.backends.cuda.enable_mem_efficient_sdp(False)
layers = [torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True) for _ in range(4)]
model = torch.nn.Sequential(*layers).cuda()
optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(steps):
    data = torch.randn(16, 128, 512, device="cuda")
    loss = (model(data) - data).square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    if step % 50 == 0:
        print(step, loss.item(), flush=True)
digest = hashlib.sha256()
for value in model.state_dict().values():
    digest.update(value.cpu().numpy().tobytes())
open(path, "w").write(digest.hexdigest())
"""
"""A training with dropout, an optimiser with state and no checkpoint; its weights depend on every step."""
FILL = """
import sys, time
import torch

gib, seconds, path = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
blocks = [torch.full((1 << 28,), float(n), device="cuda") for n in range(gib)]
print("filled", flush=True)
until, worked = time.monotonic() + 1e9, 0.0
while worked < seconds:
    begun = time.monotonic()
    blocks[0].add_(1).sub_(1)
    torch.cuda.synchronize()
    time.sleep(0.02)
    worked += min(time.monotonic() - begun, 0.2)
right = all(bool((block == float(n)).all()) for n, block in enumerate(blocks))
open(path, "w").write("right" if right else "wrong")
"""
"""Holds so much GPU memory while it works for a time, then looks whether all of it is as it was."""
PASSED = ("PYTHONPATH", "LD_LIBRARY_PATH", "CUDA_HOME", "PATH")
_rows: list[tuple[str, str, str, str]] = []


def said(claim: str, seen: str, wanted: str, *, holds: bool) -> None:
    """Note and print a line of the table."""
    _rows.append((claim, seen, wanted, "yes" if holds else "**no**"))
    print(f"| {claim} | {seen} | {wanted} | {_rows[-1][3]} |", flush=True)


class Lab:
    """A manager on this machine's GPU, and scripts for it."""

    def __init__(self, folder: Path, policy: str = "priority") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in (("train.py", TRAIN), ("fill.py", FILL)):
            (folder / name).write_text(text, encoding="utf-8")
        self.manager = Manager(folder, "--policy", policy, "--log-level", "info").start(within_s=120.0)
        self.env = {name: os.environ[name] for name in PASSED if name in os.environ}
        self.env["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

    def submit(self, script: str, *args: object, priority: int = 0) -> str:
        """Submit a script as a job on the GPU."""
        run = [sys.executable, str(self.folder / script), *map(str, args)]
        return self.manager.client.submit(
            {"run": run, "resources": {"gpus": 1}, "priority": priority, "env": self.env, "workdir": str(self.folder)}
        )[0]

    def ready(self, job: str, within_s: float = 120.0) -> None:
        """Wait until a job can be suspended."""
        eventually(lambda: self.manager.client.job(job)["if_preempted"] == "resumes", within_s=within_s, every_s=0.1)

    def wait(self, job: str, *states: str, within_s: float = 240.0) -> Json:
        """Wait for a job's state."""
        return self.manager.wait(job, *states, within_s=within_s)

    def state(self, job: str) -> Json:
        """What the job's supervisor wrote last."""
        folders = sorted(self.manager.home.glob(f"runs/{job}/[0-9]*"), key=lambda path: int(path.name))
        return dict(json.loads((folders[-1] / "0" / "state.json").read_text()))


def memory_in_use() -> float:
    """GPU memory in use, in GiB."""
    out = subprocess.run(
        ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], capture_output=True, text=True
    ).stdout
    return float(out.split()[0]) / 1024


def identical(lab: Lab) -> None:
    """Preempt a training three times and compare its weights with those of an undisturbed run."""
    steps, alone, disturbed = 1500, lab.folder / "alone", lab.folder / "disturbed"
    lab.wait(lab.submit("train.py", steps, alone))
    job = lab.submit("train.py", steps, disturbed)
    for _ in range(3):
        lab.wait(job, "running")
        lab.ready(job)
        lab.wait(lab.submit("fill.py", 2, 0.5, lab.folder / "urgent", priority=5))
    done = lab.wait(job)
    same = alone.read_text() == disturbed.read_text()
    said(
        "training preempted three times: weights",
        f"{'bit-identical' if same else 'different'}, {done['attempt']} attempts in one process",
        "bit-identical",
        holds=same and done["attempt"] == 4,
    )


def rates(lab: Lab) -> None:
    """Compare how fast the manager suspends and resumes with the driver's calls alone."""
    gib = 20
    run = [sys.executable, str(lab.folder / "fill.py"), str(gib), "60", str(lab.folder / "direct")]
    child = subprocess.Popen(run, env={**os.environ, **lab.env}, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.readline()
    driver = CudaCheckpoint("libcuda.so.1")
    out_s, in_s = [], []
    for _ in range(2):
        begun = time.monotonic()
        driver.swap_out(child.pid)
        out_s.append(time.monotonic() - begun)
        begun = time.monotonic()
        driver.swap_in(child.pid)
        in_s.append(time.monotonic() - begun)
    child.kill()
    child.wait()
    job = lab.submit("fill.py", gib, 8, lab.folder / "managed")
    managed: list[tuple[float, float]] = []
    for _ in range(2):
        lab.wait(job, "running")
        lab.ready(job)
        lab.wait(lab.submit("fill.py", 1, 0.2, lab.folder / "urgent", priority=5))
        lab.wait(job, "running")
        state = lab.state(job)
        managed.append((float(state["swap_out_s"]), float(state["swap_in_s"])))
    lab.wait(job)
    right = (lab.folder / "managed").read_text()
    for number, (name, alone) in enumerate((("suspend", out_s), ("resume", in_s))):
        with_manager = min(each[number] for each in managed)
        ratio = min(alone) / with_manager
        seen = f"{gib / with_manager:.2f} GiB/s, driver alone {gib / min(alone):.2f}: {ratio:.2f}; memory {right}"
        said(f"rate of {name}, {gib} GiB", seen, "0.9 of the driver's", holds=ratio >= 0.9 and right == "right")


def large(lab: Lab) -> None:
    """Let a job of 90 GiB preempt one of 75 GiB; then one that can't be suspended for want of host memory."""
    first = lab.submit("fill.py", 75, 5, lab.folder / "first")
    lab.ready(first)
    second = lab.submit("fill.py", 90, 12, lab.folder / "second", priority=5)
    begun = time.monotonic()
    lab.wait(second, "running")
    took_s = time.monotonic() - begun
    eventually(lambda: "don't fit" in lab.manager.client.job(second)["if_preempted"], within_s=60, every_s=0.2)
    third = lab.submit("fill.py", 1, 0.2, lab.folder / "third", priority=9)
    why = str(lab.manager.client.why(third)["reason"]["sentence"])
    states = (lab.wait(second)["state"], lab.wait(third)["state"], lab.wait(first)["state"])
    right = (lab.folder / "first").read_text(), (lab.folder / "second").read_text()
    seen = f"first suspended in {took_s:.0f} s; both ended {states[2]}, memory {right[0]} and {right[1]}"
    said("75 GiB preempted by 90 GiB, goes on", seen, "both succeed", holds=right == ("right", "right"))
    said("without host memory", f"a third waits: {why}", "waits with that reason", holds="host memory" in why)


def killed(lab: Lab) -> None:
    """Kill the manager while a job is suspended, waits suspended, and is resumed."""
    for moment in ("being suspended", "suspended", "being resumed"):
        path = lab.folder / "killed"
        path.unlink(missing_ok=True)
        job = lab.submit("fill.py", 8, 8, path)
        lab.ready(job)
        urgent = lab.submit("fill.py", 1, 3, lab.folder / "urgent", priority=5)
        if moment == "being suspended":
            eventually(lambda: lab.state(job).get("swap") == "out", every_s=0.01)  # noqa: B023
        elif moment == "suspended":
            lab.wait(urgent, "running")
        else:
            eventually(lambda: lab.state(job).get("swap") == "in", within_s=60, every_s=0.01)  # noqa: B023
        lab.manager.kill()
        lab.manager.start()
        state = lab.wait(job)["state"]
        lab.wait(urgent)
        left = lab.manager.task_processes()
        eventually(lambda: memory_in_use() < 3, within_s=20, every_s=0.5)
        right = path.read_text()
        seen = f"{state}, memory {right}, {len(left)} processes left, GPU {memory_in_use():.1f} GiB in use"
        said(f"kill -9 of the manager while a job is {moment}", seen, "goes on, nothing left", holds=right == "right")


def turns(folder: Path) -> None:
    """Time-slice two jobs that don't fit together beside a process that holds a part of the GPU."""
    ballast = subprocess.Popen(
        [sys.executable, "-c", "import torch, time; x = torch.empty(60 << 30, dtype=torch.uint8, device='cuda'); "
         "print('there', flush=True); time.sleep(1000)"], stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert ballast.stdout is not None
    ballast.stdout.readline()
    lab = Lab(folder, "gandiva:quantum_s=10,pack=false,switching=1")
    try:
        jobs = [lab.submit("fill.py", 45, 20, folder / f"turn{number}") for number in range(2)]
        ends = [lab.wait(job, within_s=300.0) for job in jobs]
        right = [(folder / f"turn{number}").read_text() for number in range(2)]
        out_s = [float(lab.state(job).get("swap_out_s") or 0.0) for job in jobs]
        seen = (
            f"{' and '.join(end['state'] for end in ends)}, memory {' and '.join(right)}; "
            f"their last suspensions took {out_s[0]:.0f} and {out_s[1]:.0f} s"
        )
        said("two jobs of 45 GiB time-sliced beside 60 GiB", seen, "both succeed", holds=right == ["right", "right"])
    finally:
        lab.manager.clean_up()
        ballast.kill()
        ballast.wait()


def main() -> None:
    """Measure the rows that are named, or all."""
    wanted = sys.argv[1:] or ["identical", "rates", "killed", "large", "turns"]
    with_manager: dict[str, Callable[[Lab], None]] = {
        "identical": identical,
        "rates": rates,
        "large": large,
        "killed": killed,
    }
    version = ctypes.c_int()
    ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    print(f"CUDA {version.value // 1000}.{version.value % 1000 // 10}\n\n| claim | seen | wanted | holds |\n|-|-|-|-|")
    with tempfile.TemporaryDirectory(prefix="rota-gpu-") as folder:
        lab = Lab(Path(folder) / "lab")
        try:
            for row in wanted:
                if row in with_manager:
                    begun = time.monotonic()
                    try:
                        with_manager[row](lab)
                    except AssertionError as error:
                        said(row, f"{error}", "", holds=False)
                        for job in lab.manager.client.jobs():
                            if job["state"] not in FINAL:
                                lab.manager.client.act(job["id"], "cancel")
                    print(f"<!-- {row}: {time.monotonic() - begun:.0f} s -->", flush=True)
        finally:
            lab.manager.clean_up()
            log = (Path(folder) / "lab" / "up.log").read_text()
            if out := os.environ.get("OUT"):
                Path(out, "up.log").write_text(log)
        if "turns" in wanted:
            turns(Path(folder) / "turns")
    sys.exit(any(row[3] != "yes" for row in _rows))


if __name__ == "__main__":
    main()
