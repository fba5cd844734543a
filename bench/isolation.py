"""What keeps tasks apart on this machine, shown by trying: run it as root where a manager is to run.

Starts a real `rota up` with accounts, prints what it says it enforces, and lets one job try each limit. Each line says
what was tried, what happened, and whether that is what should. Without root it says so and tries what needs none.
Run: `python bench/isolation.py [ACCOUNT]`; the account is `nobody` if not given.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from managers import Manager
from rota.drivers.local.cgroup_search import find
from rota.drivers.local.machine import this_machine

GPU = "ls /dev/nvidia[0-9]* 2>/dev/null | while read f; do (exec 3<$f) 2>/dev/null && echo $f; done | wc -l"
TRIES = (
    ("processes", "i=0; while [ $i -lt 200 ]; do sleep 2 & i=$((i+1)); done; echo all", {}, "annot fork"),
    ("memory", "head -c 400M /dev/zero | tail -c 399M >/dev/null; echo status $?", {"memory": "64Mi"}, "status 137"),
    ("new privileges", "grep NoNewPrivs /proc/self/status", {}, "NoNewPrivs:\t1"),
    ("other users' processes", 'stat -c %u /proc/[0-9]* 2>/dev/null | grep -vc "^$(id -u)$"', {}, "0"),
    ("private /tmp", "ls -A /tmp | wc -l", {}, "0"),
    ("private /dev/shm", "ls -A /dev/shm | wc -l", {}, "0"),
    ("GPUs that open, none assigned", GPU, {}, "0"),
)


def mounts() -> None:
    """Print the cgroup file systems and where the manager is in them."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if " - cgroup" in line:
            print("mount:", line)
    print("own:", Path("/proc/self/cgroup").read_text().strip().replace("\n", " | "))


def attempts(manager: Manager) -> int:
    """Let a job try each thing; return how many did not go as they should."""
    wrong = 0
    for what, command, needs, wanted in TRIES:
        job_id = manager.client.submit({"run": command, "workdir": "/", "resources": {"gpus": 0, **needs}})[0]
        ended = manager.wait(job_id, within_s=60.0)
        said = manager.said(job_id).strip()
        is_right = wanted in said or (what == "memory" and ended["failure"] == "out-of-memory")
        wrong += not is_right
        print(f"{'ok   ' if is_right else 'WRONG'} {what}: {said.splitlines()[-1] if said else ended['message']}")
    return wrong


def gpus(manager: Manager) -> int:
    """Let a job with one GPU count those that it can open, by their nodes and by NVIDIA's tool."""
    if not this_machine().nodes[0].devices:
        print("      no GPUs here")
        return 0
    job_id = manager.client.submit({"run": f"{GPU}; nvidia-smi -L", "workdir": "/", "resources": {"gpus": 1}})[0]
    manager.wait(job_id, within_s=60.0)
    said = manager.said(job_id).strip()
    print(f"{'ok   ' if said.startswith('1') else 'WRONG'} GPUs that open, one assigned: {said!r}")
    return int(not said.startswith("1"))


def main(account: str) -> int:
    mounts()
    with tempfile.TemporaryDirectory(prefix="rota-isolation-", dir="/var/lib" if os.geteuid() == 0 else None) as name:
        folder = Path(name)
        folder.chmod(0o711)
        found = find(folder)
        print(f"limits: {found} ({found.why or 'everything is enforced'})")
        found.sweep([])
        options = ["--log-format", "json", "--max-processes", "64"]
        if os.geteuid() == 0:
            options += ["--run-as", account, "--seccomp"]
        else:
            print("not root: tasks run as the manager and are not confined")
        manager = Manager(folder, *options).start()
        try:
            ready = [json.loads(line) for line in (folder / "up.log").read_text().splitlines() if '"ready"' in line]
            for key in ("limits", "limits_why", "isolation", "isolation_why"):
                print(f"{key}: {ready[-1].get(key)}")
            return int(attempts(manager) + gpus(manager) > 0 and os.geteuid() == 0)
        finally:
            manager.clean_up()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1] if len(sys.argv) > 1 else "nobody"))
