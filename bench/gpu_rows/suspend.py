"""Suspension with GPU memory on the host: preemption, rates, swapping in turns, managers that are killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from gpu_rows.lab import Lab, gpu_processes, points_of
from gpu_rows.table import said
from managers import eventually
from rota.drivers.local.task_runner.cuda_checkpoint import CudaCheckpoint


def identical(lab: Lab) -> None:
    """Preempt a training three times and compare its weights with those of an undisturbed run."""
    steps, alone, disturbed = 1200, lab.folder / "alone", lab.folder / "disturbed"
    lab.wait(lab.submit("train.py", steps, alone))
    job = lab.submit("train.py", steps, disturbed)
    processes: list[tuple[int, int]] = []
    for _ in range(3):
        lab.wait(job, "running")
        lab.ready(job)
        processes.append(lab.process(job))
        lab.wait(lab.submit("fill.py", 2, 0.5, lab.folder / "urgent", priority=5))
    done = lab.wait(job)
    same, count = alone.read_text() == disturbed.read_text(), len({*processes, lab.process(job)})
    said(
        "training preempted three times: weights",
        f"{'bit-identical' if same else 'different'}, {done['attempt']} attempts, {count} process",
        "bit-identical, in one process",  # one that started over would have the same weights
        holds=same and done["attempt"] == 4 and count == 1,
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
        driver.swap_out([child.pid])
        out_s.append(time.monotonic() - begun)
        begun = time.monotonic()
        driver.swap_in([child.pid])
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
    process = lab.process(first)
    second = lab.submit("fill.py", 90, 12, lab.folder / "second", priority=5)
    begun = time.monotonic()
    lab.wait(second, "running")
    took_s = time.monotonic() - begun
    eventually(lambda: "don't fit" in lab.manager.client.job(second)["if_preempted"], within_s=60, every_s=0.2)
    third = lab.submit("fill.py", 1, 0.2, lab.folder / "third", priority=9)
    why = lab.why(third)
    states = (lab.wait(second)["state"], lab.wait(third)["state"], lab.wait(first)["state"])
    right = (lab.folder / "first").read_text(), (lab.folder / "second").read_text()
    same = lab.process(first) == process
    seen = (
        f"first suspended in {took_s:.0f} s; they {states[2]} and {states[0]}, memory {right[0]} and {right[1]}; "
        f"the first {'went on in' if same else 'started over in another than'} its process"
    )
    said("75 GiB preempted by 90 GiB, goes on", seen, "both succeed", holds=same and right == ("right", "right"))
    said("without host memory", f"a third waits: {why}", "waits with that reason", holds="host memory" in why)


def killed(lab: Lab) -> None:
    """Kill the manager while a job is suspended, waits suspended, and is resumed."""
    for moment in ("being suspended", "suspended", "being resumed"):
        path = lab.folder / "killed"
        path.unlink(missing_ok=True)
        job = lab.submit("fill.py", 8, 6, path)
        lab.ready(job)
        process = lab.process(job)
        urgent = lab.submit("fill.py", 1, 2, lab.folder / "urgent", priority=5)
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
        left, on_gpu = lab.manager.task_processes(), process[0] in gpu_processes()
        right, same = path.read_text(), lab.process(job) == process
        seen = (
            f"{state} in {'the same' if same else 'another'} process, memory {right}, {len(left)} processes left, "
            f"{'some' if on_gpu else 'no'} GPU memory left"
        )
        holds = same and right == "right" and not left and not on_gpu
        said(f"kill -9 of the manager while a job is {moment}", seen, "goes on, nothing left", holds=holds)


def turns(folder: Path) -> None:
    """Time-slice two jobs that don't fit together beside a process that holds a part of the GPU."""
    ballast = subprocess.Popen(
        [sys.executable, "-c", "import torch, time; x = torch.empty(60 << 30, dtype=torch.uint8, device='cuda'); "
         "print('there', flush=True); time.sleep(1000)"], stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert ballast.stdout is not None
    ballast.stdout.readline()
    lab = Lab(folder, policy="gandiva:quantum_s=10,pack=false,switching=1")
    try:
        jobs = [lab.submit("fill.py", 45, 35, folder / "turn0")]
        lab.ready(jobs[0])
        jobs.append(lab.submit("fill.py", 45, 35, folder / "turn1"))
        lab.wait(jobs[0], "suspended", within_s=90.0)
        why = lab.why(jobs[0])
        ends = [lab.wait(job, within_s=300.0) for job in jobs]
        right = [(folder / f"turn{number}").read_text() for number in range(2)]
        out_s = [float(lab.state(job).get("swap_out_s") or 0.0) for job in jobs]
        seen = (
            f"{' and '.join(end['state'] for end in ends)}, memory {' and '.join(right)}; "
            f"their last suspensions took {out_s[0]:.0f} and {out_s[1]:.0f} s; `rota why` meanwhile: {why}"
        )
        said("two jobs of 45 GiB time-sliced beside 60 GiB", seen, "both succeed", holds=right == ["right", "right"])
    finally:
        lab.end()
        ballast.kill()
        ballast.wait()


def resident(folder: Path) -> None:
    """Time-slice two jobs that fit together: neither leaves the GPU's memory once both are known."""
    lab = Lab(folder, policy="gandiva:quantum_s=8,pack=false")
    try:
        jobs = [lab.submit("fill.py", 5, 16, folder / "stays0")]
        lab.ready(jobs[0])
        jobs.append(lab.submit("fill.py", 5, 16, folder / "stays1", gpu_memory="8Gi"))
        ends = [lab.wait(job, within_s=120.0)["state"] for job in jobs]
        right = [(folder / f"stays{number}").read_text() for number in range(2)]
        copied = [lab.state(job).get("swap_out_s") for job in jobs]
        seen = f"{ends[0]} and {ends[1]}, memory {right[0]} and {right[1]}, {sum(map(bool, copied))} copied to the host"
        said("two jobs of 5 GiB time-sliced", seen, "none is copied", holds=right == ["right"] * 2 and not any(copied))
    finally:
        lab.end()


def waits(folder: Path) -> None:
    """Let a job that can't be time-sliced for want of host memory keep the GPU, and the next one wait."""
    ballast = subprocess.Popen(
        [sys.executable, "-c", "import time; x = bytearray(75 << 30); x[::4096] = bytes(len(x) >> 12); "
         "print('there', flush=True); time.sleep(1000)"], stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert ballast.stdout is not None
    ballast.stdout.readline()
    lab = Lab(folder, policy="gandiva:quantum_s=2,pack=false")
    try:
        first = lab.submit("fill.py", 60, 15, folder / "first")
        eventually(lambda: "don't fit" in lab.manager.client.job(first)["if_preempted"], within_s=90, every_s=0.2)
        second = lab.submit("fill.py", 90, 1, folder / "second")
        eventually(lambda: lab.manager.state(second) == "waiting", within_s=10)
        why = lab.why(second)
        ends = [lab.wait(job)["state"] for job in (first, second)]
        holds = ends == ["succeeded", "succeeded"] and "host memory" in why
        said("time-slicing without host memory", f"the second waits: {why}; {ends[0]}, {ends[1]}", "waits", holds=holds)
    finally:
        lab.end()
        ballast.kill()
        ballast.wait()


def killed_under_mps(folder: Path) -> None:
    """Kill the manager while two jobs share the GPU through MPS; then let a neighbour fault."""
    lab = Lab(folder, "gpu: {mps: packed}\n")
    try:
        paths = [folder / f"client{number}" for number in range(2)]
        jobs = [lab.submit("work.py", "wide", 14, path, gpus=0.4) for path in paths]
        for path in paths:
            eventually(lambda: points_of(path), within_s=90)  # noqa: B023
        lab.manager.kill()
        lab.manager.start()
        ends = [lab.wait(job) for job in jobs]
        left = lab.manager.task_processes()
        seen = f"{ends[0]['state']} and {ends[1]['state']}, attempts {ends[0]['attempt']} and {ends[1]['attempt']}"
        good = [end["state"] for end in ends] == ["succeeded"] * 2
        said(
            "kill -9 of the manager while two jobs are clients of MPS",
            f"{seen}, {len(left)} processes left",
            "both go on, nothing left",
            holds=good and not left,
        )
        neighbour = lab.submit("work.py", "wide", 14, folder / "neighbour", gpus=0.4)
        eventually(lambda: points_of(folder / "neighbour"), within_s=90)
        fouls = lab.submit("fouls.py", gpus=0.4)
        bad, kept = lab.wait(fouls, within_s=120.0), lab.wait(neighbour, within_s=180.0)
        seen = f"it {bad['state']} ({bad['failure']}); its neighbour {kept['state']} in attempt {kept['attempt']}"
        said(
            "a client of MPS faults",
            seen,
            "it fails, its neighbour is retried or not touched",
            holds=bad["state"] == "failed" and kept["state"] == "succeeded",
        )
    finally:
        lab.end()
