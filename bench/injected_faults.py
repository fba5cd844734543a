"""Faults injected into a live manager on emulated devices: right verdicts, healthy nodes left alone, what is lost.

Three parts. Verdicts of 200 faults: jobs that really fail (signals, full disks, missing modules, refused connections),
outputs of failures in many forms, killed supervisors, ranks that hang or are slow, gangs that lose a node, nodes with
faulty results of checks, Xids of a stand-in's GPUs. A gang loses a node and goes on from its checkpoint on a spare.
Intervals: the time lost to failures with blind intervals and with Young's. `make health` runs all;
`python bench/injected_faults.py verdicts gang --seed 2` some.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "src")]  # not this folder, which has a gpu.py of its own

from gpu.machines import GpuMachine
from health.held_out_corpus import HELD_OUT
from health.held_out_later import HELD_OUT_LATER
from health.held_out_third import HELD_OUT_THIRD
from health.log_corpus import CORPUS
from managers import FINAL, Manager, eventually
from rota.health.node_state import Severity
from rota.health.xid import action_for, severity_of

JOBS, HANGS, SLOW, LOST, SUPERVISORS, CHECKS = 140, 10, 10, 10, 10, 10
"""How many faults of each kind; with the Xids, 200."""
XIDS = (79, 119, 95, 64, 48, 74, 13, 31, 43, 63)
NODES = 8
AT_ONCE = 12
STALLS_AT_ONCE = 5
LAYERS = 8
CHECKED = ("n3", "n6")
"""Nodes whose checks report faults."""


class InjectedFault(NamedTuple):
    """A command that fails, and the verdicts that a person would call right."""

    kind: str
    run: str
    right: tuple[str, ...]


def _python(line: str) -> str:
    return f"{sys.executable} -c '{line}'"


REAL: tuple[InjectedFault, ...] = (
    InjectedFault("full disk", "echo saving; dd if=/dev/zero of=/dev/full bs=64k count=1", ("disk-full",)),
    InjectedFault("full disk", _python('open("/dev/full","w").write("x"*100000)'), ("disk-full",)),
    InjectedFault("killed", "echo working; kill -9 $$", ("killed",)),
    InjectedFault("crash", "kill -SEGV $$", ("core-dump",)),
    InjectedFault("crash", "kill -ABRT $$", ("core-dump",)),
    InjectedFault("program", _python("import no_such_module"), ("import-error",)),
    InjectedFault("program", _python("def f(:"), ("syntax-error",)),
    InjectedFault("program", _python("{}[1]"), ("semantic-error",)),
    InjectedFault("program", _python("len(3)"), ("semantic-error",)),
    InjectedFault("memory", _python("bytearray(1 << 60)"), ("out-of-memory",)),
    InjectedFault("data", _python('open("/data/no/such/file")'), ("missing-file",)),
    InjectedFault("network", _python('import socket; socket.create_connection(("127.0.0.1", 1))'), ("communication",)),
    InjectedFault("unknown", "exit 3", ("exit",)),
)
DEVICE = frozenset({"ecc-error", "gpu-lost", "nvlink-error", "device", "thermal", "cuda-init-failed", "cuda-failure"})
NETWORK = frozenset({"nccl-watchdog", "communication", "mpi-error", "mpi-runtime-failure"})


def _noise(rng: random.Random) -> str:
    """Lines of a healthy run, which tell nothing."""
    step = rng.randrange(10_000)
    return "".join(f"step {step + at} loss {rng.uniform(1, 9):.3f} lr 3e-4\n" for at in range(rng.randrange(3, 30)))


def injected(rng: random.Random, folder: Path) -> list[InjectedFault]:
    """The faults of a run: real ones, and logs behind noise of their own."""
    logged = [*CORPUS, *HELD_OUT, *HELD_OUT_LATER, *HELD_OUT_THIRD]
    faults = []
    for number in range(JOBS):
        if number % 2:
            faults.append(rng.choice(REAL))
            continue
        each = rng.choice(logged)
        text = folder / f"log-{number}.txt"
        text.write_text(_noise(rng) + each.output)
        end = f"kill -{each.signal} $$" if each.signal else f"exit {each.exit_code}"
        kind = "output of a device error" if each.cause in DEVICE else "output of another error"
        if each.cause in NETWORK:
            kind = "output of a network error"
        # a command that a shell could not run has a verdict of its own, which says what it lacks in its words
        right = (each.cause, "command") if each.exit_code in (126, 127) else (each.cause,)
        faults.append(InjectedFault(kind, f"cat {text}; {end}", right))
    return faults


def verdicts(seed: int) -> bool:
    """Inject faults and compare verdicts; True if enough are right and no healthy node was drained."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checks = folder / "checks"
        checks.mkdir()
        program = checks / "self-test"
        program.write_text(
            f"#!/bin/sh\n[ -e {folder}/bad-$ROTA_NODE ] || exit 0\n"
            'echo \'{"status": 2, "text": "self-test: wrong result"}\'; exit 2\n'
        )
        program.chmod(0o755)
        settings = folder / "up.yaml"
        settings.write_text("health: {every: 2s, checks: [disk], programs: checks, large: 1000, stall_after: 3s}\n")
        manager = Manager(folder, "--emulate", f"gpu={4 * NODES}/4", "--config", str(settings)).start(within_s=120)
        try:
            results = _jobs(manager, injected(rng, folder)) + _stalls(manager, folder, rng)
            results += _lost_nodes(manager, folder, rng) + _supervisors(manager, SUPERVISORS)
            results += _nodes(manager, folder, CHECKS)
        finally:
            manager.clean_up()
        results += _xids(folder / "gpus")
    return _report(results)


STEPS = """
import os, random, time
import rota.sdk
for at in rota.sdk.steps(range(1000000), save_every_s=3600):
    time.sleep(float(os.environ["SLOW"]) if os.environ["RANK"] == os.environ["RANK_SLOWED"] else 0.02)
    if at == int(os.environ["HANG"]):
        time.sleep(3600)
"""


def _stalls(manager: Manager, folder: Path, rng: random.Random) -> list[tuple[str, bool, str]]:
    """Let gangs hang, and let one rank of others be slow: each gets its verdict, and the slow rank is named."""
    (folder / "steps.py").write_text(STEPS)
    results: list[tuple[str, bool, str]] = []
    wanted = ["hang"] * HANGS + ["straggler"] * SLOW
    while wanted:
        group, wanted = wanted[:STALLS_AT_ONCE], wanted[STALLS_AT_ONCE:]
        begun = []
        for kind in group:
            chosen = rng.randrange(3)
            env = {"RANK_SLOWED": str(chosen), "SLOW": "0.02", "HANG": str(rng.randrange(60, 200))}
            if kind == "straggler":
                env |= {"SLOW": str(0.02 * rng.uniform(2.5, 8)), "HANG": "-1"}
            asked = {"workers": 3, "resources": {"gpus": 1}, "max_restarts": 0, "env": env}
            begun.append(
                (kind, manager.client.submit({"run": [sys.executable, str(folder / "steps.py")], **asked})[0], chosen)
            )
        for kind, job_id, chosen in begun:

            def verdicts(job_id: str = job_id) -> list[dict[str, Any]]:
                found: list[dict[str, Any]] = manager.client.why(job_id)["verdicts"]
                return found

            with contextlib.suppress(AssertionError):
                eventually(verdicts, within_s=240, every_s=0.5)
            said = [(each["cause"], each["evidence"]) for each in verdicts()]
            right = bool(said) and said[0][0] == kind and (kind == "hang" or f"rank {chosen} " in said[0][1])
            results.append((kind, right, f"{said}, rank {chosen}"))
            manager.client.act(job_id, "cancel")
    return results


def _lost_nodes(manager: Manager, folder: Path, rng: random.Random) -> list[tuple[str, bool, str]]:
    """Kill all that runs on one node of a gang: the verdict is that it was lost, and the gang starts again."""
    results = []
    for _ in range(LOST):
        asked = {"workers": 2, "resources": {"gpus": 4}, "checkpoint": {"grace": "5s"}}
        job_id = manager.client.submit({"run": 'sleep "$([ $ROTA_ATTEMPT = 1 ] && echo 60 || echo 0)"', **asked})[0]
        manager.wait(job_id, "running", within_s=60)
        lost = rng.choice(manager.client.job(job_id)["nodes"])
        eventually(lambda lost=lost: _kill_on(manager, lost), within_s=60)  # type: ignore[misc] # its tasks may start late
        job = manager.wait(job_id, within_s=120)
        causes = [each["cause"] for each in manager.client.why(job_id)["verdicts"]]
        results.append(("lost node", job["state"] == "succeeded" and causes == ["lost"], f"{job['state']}, {causes}"))
    return results


def _kill_on(manager: Manager, node: str) -> bool:
    """Kill the supervisors of tasks on a node; False if there is none yet."""
    killed = False
    for pid in manager.supervisors():
        with contextlib.suppress(OSError):
            if f"ROTA_NODE={node}".encode() in _environment_below(pid):
                os.kill(pid, signal.SIGKILL)
                killed = True
    return killed


def _xids(folder: Path) -> list[tuple[str, bool, str]]:
    """Report critical errors by a stand-in of the GPUs: the documented action follows for each."""
    folder.mkdir()
    machine = GpuMachine(folder / "nvml", 2, busy=90)
    (folder / "rota.yaml").write_text("gpu: {nvml: nvml, sample: 0.2s}\nhealth: {every: 0s}\n")
    manager = Manager(folder, "--config", str(folder / "rota.yaml")).start(within_s=120)
    results, seen = [], []
    try:
        for number in XIDS:
            wanted = severity_of(number) is Severity.SEVERE
            seen.append(number)
            machine.change(0, xid=seen)
            eventually(lambda number=number: manager.client.gpus()[0]["xid"] == number)  # type: ignore[misc] # bound
            node = manager.client.nodes()[0]
            is_out = node["health"] in ("bad", "draining")
            right = is_out == wanted and (not wanted or action_for(number).value in node["health_why"])
            results.append(("Xid", right, f"Xid {number}: {node['health']}, {node['health_why']}"))
            manager.client.drain(node["id"], drained=False)
    finally:
        manager.clean_up()
    return results


def _jobs(manager: Manager, faults: list[InjectedFault]) -> list[tuple[str, bool, str]]:
    """Run every fault as a job; each result is its kind, whether the verdict was right, and what was said."""
    results: list[tuple[str, bool, str]] = []
    running: dict[str, InjectedFault] = {}
    waiting = list(faults)
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            fault = waiting.pop()
            running[manager.submit(fault.run, resources={"gpus": 1}, max_restarts=0)] = fault
        for job_id in list(running):
            job = manager.client.job(job_id)
            if job["state"] in FINAL:
                fault = running.pop(job_id)
                said = str(job["failure"])
                results.append((fault.kind, said in fault.right, f"{said} for {fault.run[:60]}, right: {fault.right}"))
        time.sleep(0.05)
    return results


def _supervisors(manager: Manager, count: int) -> list[tuple[str, bool, str]]:
    """Kill the supervisors of running jobs: each is lost, started again, and succeeds."""
    results = []
    for _ in range(count):
        job_id = manager.submit('[ "$ROTA_ATTEMPT" = 2 ] || sleep 60', resources={"gpus": 1})
        manager.wait(job_id, "running", within_s=60)
        for pid in eventually(manager.supervisors):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        job = manager.wait(job_id, within_s=90)
        causes = [each["cause"] for each in manager.client.why(job_id)["verdicts"]]
        right = job["state"] == "succeeded" and causes == ["lost"]
        results.append(("killed supervisor", right, f"{job['state']}, {causes}"))
    return results


def _nodes(manager: Manager, folder: Path, count: int) -> list[tuple[str, bool, str]]:
    """Let the check of a node report wrong results: this node is drained, and comes back after its repair."""
    results = []
    for number in range(count):
        node = CHECKED[number % len(CHECKED)]
        (folder / f"bad-{node}").touch()

        def states() -> dict[str, str]:
            return {each["id"]: each["health"] for each in manager.client.nodes()}

        with contextlib.suppress(AssertionError):
            eventually(lambda node=node: states()[node] in ("bad", "draining"), within_s=60)  # type: ignore[misc] # bound
        seen = states()
        (folder / f"bad-{node}").unlink()
        right = seen[node] in ("bad", "draining") and all(seen[each] == "healthy" for each in seen if each != node)
        manager.client.repair(node)
        with contextlib.suppress(AssertionError):
            eventually(lambda node=node: states()[node] == "healthy", within_s=60)  # type: ignore[misc] # bound
        results.append(("wrong result of a node", right and states()[node] == "healthy", str(seen)))
    drained = [each["id"] for each in manager.client.nodes() if each["state"] != "up" or each["health"] != "healthy"]
    print(f"nodes drained that were healthy: {len(drained)}")
    results.append(("healthy nodes", not drained, str(drained)))
    return results


def _report(results: list[tuple[str, bool, str]]) -> bool:
    print("\n| fault | injected | right verdicts |")
    print("|---|---|---|")
    tally, right = Counter(kind for kind, _, _ in results), Counter(kind for kind, ok, _ in results if ok)
    for kind, count in sorted(tally.items()):
        if kind != "healthy nodes":
            print(f"| {kind} | {count} | {right[kind]} |")
    faults = [ok for kind, ok, _ in results if kind != "healthy nodes"]
    part = sum(faults) / len(faults)
    print(f"| all | {len(faults)} | {sum(faults)} ({part:.1%}) |")
    for kind, ok, said in results:
        if not ok:
            print(f"wrong: {kind}: {said}")
    return part >= 0.95 and all(ok for kind, ok, _ in results if kind == "healthy nodes")


TRAIN = """
import os, time
import rota.sdk
saver = rota.sdk.Checkpoints(os.environ["CKPT"], name="rank" + os.environ["RANK"])
found = saver.load()
run = rota.sdk.steps(range(100000), save_every_s=float(os.environ["EVERY"] or 0) or None)
print("from", run.step, "on", os.environ["ROTA_NODE"], flush=True)
for batch in run:
    time.sleep(0.05)
    if run.step >= int(os.environ["STEPS"]):
        break
    if run.should_save:
        saver.save(run.step + 1, {"step": run.step + 1})
        saver.flush()
        time.sleep(float(os.environ.get("WRITE", "0")))
        run.saved()
"""


def gang() -> bool:
    """Kill all that runs on one node of a gang: it goes on from its checkpoint, on another node."""
    every_s, step_s = 1.0, 0.05
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(TRAIN)
        program = folder / "checks" / "link"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\n[ -e {folder}/lost-$ROTA_NODE ] || exit 0\necho '{{\"status\": 2}}'; exit 2\n")
        program.chmod(0o755)
        (folder / "up.yaml").write_text("health: {every: 1s, checks: [], programs: checks, spares: 1}\n")
        manager = Manager(folder, "--emulate", "gpu=6/2", "--config", str(folder / "up.yaml")).start(within_s=120)
        try:
            eventually(lambda: manager.client.nodes()[2]["health_why"].startswith("spare"))
            job_id = manager.client.submit(
                {
                    "run": [sys.executable, str(folder / "train.py")],
                    "workers": 2,
                    "resources": {"gpus": 2},
                    "checkpoint": {"grace": "10s"},
                    "env": {"CKPT": str(folder / "ckpt"), "EVERY": str(every_s), "STEPS": "1000"},
                }
            )[0]
            eventually(lambda: (manager.client.job(job_id).get("progress") or {}).get("step", 0) > 60, within_s=120)
            lost_node = manager.client.job(job_id)["nodes"][1]
            done = manager.client.job(job_id)["progress"]["step"]
            waiting = manager.submit("true", resources={"gpus": 2})  # the queue is not empty
            begun = time.monotonic()
            (folder / f"lost-{lost_node}").touch()
            eventually(
                lambda: {n["id"]: n["health"] for n in manager.client.nodes()}[lost_node] != "healthy", within_s=60
            )
            for pid in manager.supervisors():
                with contextlib.suppress(OSError):
                    if f"ROTA_NODE={lost_node}".encode() in _environment_below(pid):
                        os.kill(pid, signal.SIGKILL)
            manager.wait(job_id, "running", within_s=60)
            eventually(lambda: "from" in manager.said(job_id), within_s=60)
            eventually(lambda: manager.client.job(job_id)["attempt"] == 2, within_s=60)
            eventually(lambda: b"from" in b"".join(manager.client.logs(job_id, attempt=2)), within_s=60)
            took_s = time.monotonic() - begun
            told = b"".join(manager.client.logs(job_id, attempt=2)).decode()
            resumed = int(told.split("from ")[1].split()[0])
            nodes = manager.client.job(job_id)["nodes"]
            state = manager.state(waiting)
            manager.client.act(job_id, "cancel")
        finally:
            manager.clean_up()
    lost_s = (done - resumed) * step_s
    print(f"\ngang: step {done} when {lost_node} was lost; from step {resumed} on {nodes} {took_s:.1f} s later")
    print(f"work lost: about {max(lost_s, 0.0):.2f} s of work; the interval is {every_s:g} s")
    print(f"the job behind it in the queue: {state}")
    return bool(resumed > 0 and lost_node not in nodes and lost_s <= every_s + 1.0)


def _environment_below(pid: int) -> bytes:
    """The environment of the processes that a supervisor started."""
    found = b""
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            with contextlib.suppress(OSError):
                found += Path(f"/proc/{child}/environ").read_bytes()
    return found


def intervals(seed: int) -> bool:
    """Run the same training under failures with blind intervals and the adaptive one; compare the time lost.

    The manager knows the rate of failures, as from experience; how long a checkpoint takes, the job finds out.
    """
    write_s, mttf_s, steps = 0.3, 8.0, 600
    rows = []
    for title, every in (("every 0.3 s", "0.3"), ("every 20 s", "20"), ("adaptive", "")):
        rng = random.Random(seed)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "train.py").write_text(TRAIN)
            (folder / "up.yaml").write_text(f"health: {{failure_rate: {1000 * 86400 / mttf_s}}}\n")
            manager = Manager(folder, "--emulate", "gpu=2/2", "--config", str(folder / "up.yaml")).start(within_s=120)
            try:
                env = {"CKPT": str(folder / "ckpt"), "EVERY": every, "STEPS": str(steps), "WRITE": str(write_s)}
                asked = {"resources": {"gpus": 2}, "checkpoint": {"grace": "10s"}, "max_restarts": 1000, "env": env}
                job_id = manager.client.submit({"run": [sys.executable, str(folder / "train.py")], **asked})[0]
                manager.wait(job_id, "running", within_s=60)
                begun = time.monotonic()
                failures = _fail_at_random(manager, job_id, rng, mttf_s, within_s=150.0)
                took_s = time.monotonic() - begun
                done = (manager.client.job(job_id).get("progress") or {}).get("step", 0)
            finally:
                manager.clean_up()
        rows.append((title, failures, took_s, done, 1 - done * 0.05 / took_s))
    print("\n| interval | failures | took (s) | steps done | time lost |")
    print("|---|---|---|---|---|")
    for title, failures, took_s, done, lost in rows:
        print(f"| {title} | {failures} | {took_s:.0f} | {done} | {lost:.0%} |")
    return bool(rows[-1][4] <= min(row[4] for row in rows[:-1]) + 0.05)


def _fail_at_random(manager: Manager, job_id: str, rng: random.Random, mttf_s: float, within_s: float) -> int:
    """Kill the supervisor of a job at random times until it has ended; return how often.

    The times between are exponential, but drawn by layers: few of them have the right mean, too, so that rows compare.
    """
    gaps_s = [-mttf_s * math.log(1 - (layer + rng.random()) / LAYERS) for layer in range(LAYERS)]
    rng.shuffle(gaps_s)
    failures, until = 0, time.monotonic() + within_s
    due = time.monotonic() + gaps_s[0]
    while time.monotonic() < until and manager.state(job_id) not in FINAL:
        if time.monotonic() >= due:
            due = time.monotonic() + gaps_s[(failures + 1) % LAYERS]
            for pid in manager.supervisors():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            failures += 1
        time.sleep(0.1)
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=["verdicts", "gang", "intervals", []], default=[])
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    parts = given.parts or ["verdicts", "gang", "intervals"]
    results = {}
    if "verdicts" in parts:
        results["verdicts"] = verdicts(given.seed)
    if "gang" in parts:
        results["gang"] = gang()
    if "intervals" in parts:
        results["intervals"] = intervals(given.seed)
    print("\n" + ", ".join(f"{name}: {'as it must be' if ok else 'NOT as it must be'}" for name, ok in results.items()))
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
