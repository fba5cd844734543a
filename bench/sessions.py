"""Measure how sessions feel: `.venv/bin/python bench/sessions.py [--sessions 50] [--keys 200]`.

Starts a manager of its own on emulated devices, and users at pseudo-terminals with `rota run -- bash`. Measured is the
time from a key to its echo: in a shell on this machine without Rota, in one session, and in one of many sessions while
all of them are open and one in ten is typed into. Then the manager is killed with -9 and started again: counted are the
tasks that are still the same process, and the users that came back by themselves to a shell that knows a variable.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pty
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROTA = str(Path(sys.executable).with_name("rota"))
WAIT_S = 120.0
Json = dict[str, Any]


class Typist:
    """A program at a pseudo-terminal, and a user who types into it."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self._master, slave = pty.openpty()
        self._process = subprocess.Popen(command, env=env, preexec_fn=lambda: os.login_tty(slave))
        os.close(slave)
        self._shown = b""

    def expect(self, text: bytes) -> None:
        """Wait until a text is shown, and forget what came up to it."""
        deadline = time.monotonic() + WAIT_S
        while text not in self._shown:
            if not select.select([self._master], [], [], 1.0)[0]:
                if time.monotonic() > deadline:
                    raise SystemExit(f"no {text!r} in {self._shown[-500:]!r}")
                continue
            self._shown += os.read(self._master, 65536)
        self._shown = self._shown.partition(text)[2]

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._master, keys)

    def echo_ms(self, keys: int) -> list[float]:
        """Press keys one by one, and return how long each took to be shown."""
        took = []
        for number in range(keys):
            key = bytes([ord("a") + number % 26])
            self._forget()
            begun = time.perf_counter()
            self.type(key)
            self.expect(key)
            took.append((time.perf_counter() - begun) * 1e3)
            if number % 40 == 39:
                self.type(b"\x15")  # an empty line again
        self.type(b"\x15")
        return took

    def _forget(self) -> None:
        """Forget what was shown, once nothing more comes for a moment."""
        while select.select([self._master], [], [], 0.02)[0]:
            os.read(self._master, 65536)
        self._shown = b""

    def close(self) -> None:
        """End the program."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._master)


def ready(env: dict[str, str], *command: str) -> Typist:
    """A shell that has shown its first prompt."""
    found = Typist([*command, "bash", "--norc", "--noprofile"], {**env, "PS1": "ready> ", "TERM": "dumb"})
    found.expect(b"ready> ")
    return found


def shown(name: str, took: list[float]) -> str:
    """A row: median, 95% and worst of some times."""
    ordered = sorted(took)
    return f"| {name} | {statistics.median(took):.1f} | {ordered[int(len(took) * 0.95)]:.1f} | {ordered[-1]:.1f} |"


def start_manager(env: dict[str, str], port: int) -> subprocess.Popen[bytes]:
    """A manager that answers."""
    command = [ROTA, "up", "--port", str(port), "--emulate", "gpu=16/8"]
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return process
        time.sleep(0.05)
    raise SystemExit("no manager")


def supervised(home: Path) -> dict[str, int]:
    """The process of each running task."""
    found = {}
    for path in home.glob("runs/*/*/0/state.json"):
        state: Json = json.loads(path.read_text())
        if state["phase"] == "running" and os.path.exists(f"/proc/{state['pid']}"):
            found[path.parts[-4]] = int(state["pid"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--port", type=int, default=7699)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "HOME": folder, "XDG_DATA_HOME": f"{folder}/data", "XDG_STATE_HOME": f"{folder}/state"}
        env["ROTA_SERVER"] = f"http://127.0.0.1:{wanted.port}"
        manager = start_manager(env, wanted.port)
        users: list[Typist] = []
        try:
            print("| echo of a key, ms | median | 95% | worst |\n|---|---:|---:|---:|")
            here = ready(env)
            users.append(here)
            print(shown("shell without Rota", here.echo_ms(wanted.keys)))
            run = (ROTA, "run", "-e", "PS1=ready> ", "--")
            users.append(ready(env, *run))
            print(shown("`rota run -- bash`, one session", users[1].echo_ms(wanted.keys)), flush=True)
            while len(users) <= wanted.sessions:
                users.append(ready(env, *run))
            took = [each for user in users[1::10] for each in user.echo_ms(wanted.keys // 5)]
            print(shown(f"`rota run -- bash`, {wanted.sessions} sessions at once", took), flush=True)
            manager = killed(manager, users[1:], Path(folder) / "data" / "rota", env, wanted.port)
        finally:
            for user in users:
                user.close()
            subprocess.run([ROTA, "cancel", "--all", "--yes"], env=env, capture_output=True, check=False)
            for pid in supervised(Path(folder) / "data" / "rota").values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            manager.terminate()
            manager.wait()


def killed(
    manager: subprocess.Popen[bytes], users: list[Typist], home: Path, env: dict[str, str], port: int
) -> subprocess.Popen[bytes]:
    """Kill the manager, start another, and count what is as before."""
    for number, user in enumerate(users):
        user.type(f"kept={number}\n".encode())
        user.expect(b"ready> ")
    before = supervised(home)
    manager.kill()
    manager.wait()
    fresh = start_manager(env, port)
    known = 0
    for number, user in enumerate(users):
        user.type(b"echo still-$kept-\n")
        user.expect(f"still-{number}-".encode())
        known += 1
    after = supervised(home)
    same = sum(after.get(job) == pid for job, pid in before.items())
    print(
        f"\nmanager killed with -9: {same} of {len(before)} tasks are the same process, {known} of {len(users)} users"
    )
    print("came back by themselves to a shell that knows what they had set")
    return fresh


if __name__ == "__main__":
    main()
