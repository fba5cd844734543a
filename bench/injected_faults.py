"""Faults injected into a live manager on emulated devices: right verdicts, and healthy nodes left alone.

Of 200 faults: jobs that really fail (signals, full disks, missing modules, refused connections), outputs of failures
in many forms, killed supervisors, ranks that hang or are slow, gangs that lose a node, nodes with faulty results of
checks, Xids of a stand-in's GPUs. `make health` runs it; `python bench/injected_faults.py --seed 2` other faults.
"""

from __future__ import annotations

import argparse
import contextlib
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
        eventually(lambda lost=lost: manager.kill_on(lost), within_s=60)  # type: ignore[misc] # its tasks may start late
        job = manager.wait(job_id, within_s=120)
        causes = [each["cause"] for each in manager.client.why(job_id)["verdicts"]]
        results.append(("lost node", job["state"] == "succeeded" and causes == ["lost"], f"{job['state']}, {causes}"))
    return results


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    is_right = verdicts(parser.parse_args().seed)
    print(f"\nverdicts: {'as they must be' if is_right else 'NOT as they must be'}")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
