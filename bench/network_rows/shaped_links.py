"""Network namespaces with shaped links, and workers started in them."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PREFIX = f"rota{os.getpid() % 10000}"
SETS = itertools.count()
WORKER = Path(__file__).parent / "worker.py"


def reason_to_skip() -> str | None:
    """Why this can't run here."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"there is no {tool}; install iproute2"
    try:
        import torch.distributed as dist
    except ImportError:
        return "there is no PyTorch; install torch"
    if not dist.is_gloo_available():
        return "this PyTorch has no gloo"
    made = subprocess.run(["ip", "netns", "add", f"{PREFIX}t"], capture_output=True, text=True)
    if made.returncode:
        return f"network namespaces can't be made: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", f"{PREFIX}t"], check=False)
    return None


@contextlib.contextmanager
def namespaces(count: int, mbit: float) -> Iterator[list[str]]:
    """Namespaces on one bridge, each with a link of so many Mbit/s in both directions."""
    prefix = f"{PREFIX}s{next(SETS)}"  # a set that is removed may still be there for a moment
    bridge, names = f"{prefix}br", [f"{prefix}n{n}" for n in range(count)]

    def do(*command: str) -> None:
        subprocess.run(command, check=True, capture_output=True)

    shape = ("root", "tbf", "rate", f"{mbit}mbit", "burst", "64kb", "latency", "400ms")
    try:
        do("ip", "link", "add", bridge, "type", "bridge")
        do("ip", "link", "set", bridge, "up")
        for number, name in enumerate(names):
            do("ip", "netns", "add", name)
            do("ip", "link", "add", f"{name}h", "type", "veth", "peer", "name", "eth0", "netns", name)
            do("ip", "link", "set", f"{name}h", "master", bridge, "up")
            for command in (("addr", "add", f"10.77.0.{number + 1}/24", "dev", "eth0"), ("link", "set", "eth0", "up")):
                do("ip", "-n", name, *command)
            do("ip", "-n", name, "link", "set", "lo", "up")
            do("tc", "-n", name, "qdisc", "add", "dev", "eth0", *shape)
            do("tc", "qdisc", "add", "dev", f"{name}h", *shape)
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "link", "del", f"{name}h"], capture_output=True, check=False)
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", bridge], capture_output=True, check=False)


def launch(names: list[str], mode: str, port: int, **options: Any) -> list[subprocess.Popen[str]]:
    """Start one worker in each namespace."""
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "GLOO_SOCKET_IFNAME": "eth0",
        "MASTER_ADDR": "10.77.0.1",
    }
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2] / "src"), env.get("PYTHONPATH", "")])
    started = []
    for rank, name in enumerate(names):
        own = {**env, "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(len(names))}
        command = ["ip", "netns", "exec", name, sys.executable, str(WORKER), mode, json.dumps(options)]
        started.append(subprocess.Popen(command, env=own, stdout=subprocess.PIPE, text=True))
    return started


def results(started: list[subprocess.Popen[str]], timeout_s: float = 150.0) -> list[dict[str, Any]]:
    """What each worker printed."""
    found = []
    try:
        for process in started:
            output, _ = process.communicate(timeout=timeout_s)
            if process.returncode:
                raise SystemExit(f"a worker failed with status {process.returncode}")
            found.append(json.loads(output.splitlines()[-1]))
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
    return found


def run(names: list[str], mode: str, **options: Any) -> list[dict[str, Any]]:
    """Run workers to their end."""
    return results(launch(names, mode, 29500 + os.getpid() % 1000, **options))
