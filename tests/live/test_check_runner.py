"""Checks as programs of a manager: those that fail by themselves speak neither for nor against their node."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from builders import cluster, node
from managers import eventually
from rota.core.model.job import NodeId
from rota.core.state.state import State
from rota.files.up_file import HealthPart
from rota.health.node_state import GOOD_TO_CLEAR, GOOD_TO_RETURN, HealthSign, NodeHealthState, Severity
from rota.live.health.check_runner import CheckRunner
from rota.live.health.node_watch import NodeWatch

NODE = NodeId("n1")
BROKEN = {
    "crash": ("#!/usr/bin/env python3\nimport no_such_module\n", "No module named 'no_such_module'"),
    "usage": ("#!/bin/sh\necho 'probe: bad option' >&2; exit 2\n", "probe: bad option"),
    "killed": ("#!/bin/sh\nkill -SEGV $$\n", "it was killed by SIGSEGV"),
    "slow": ("#!/bin/sh\nsleep 600 & sleep 600\n", "it took longer than 1 s"),
    "endless": ("#!/bin/sh\nyes\n", "it printed more than 16 MiB"),
    "no-shebang": ("\x7fELF nonsense", "it can't be run: Exec format error"),
    "library": ("#!/no/such/interpreter\n", "it can't be run: No such file or directory"),
}


class Checks:
    """A folder of programs, and what runs them on one node."""

    def __init__(self, home: Path, timeout_s: float = 60.0) -> None:
        self.folder = home / "checks"
        self.folder.mkdir(exist_ok=True)
        self.nodes = NodeWatch(State(cluster(node("n1"))), home, lambda event: None)
        settings = HealthPart(checks=(), programs=self.folder, timeout=timeout_s)
        self.runner = CheckRunner(State(cluster(node("n1"))), self.nodes, settings, home, None)

    def put(self, name: str, text: str) -> None:
        program = self.folder / name
        program.write_text(text)
        program.chmod(0o755)

    def verdict(self, name: str, status: int) -> None:
        self.put(name, f'#!/bin/sh\necho \'{{"status": {status}, "text": "a link is down"}}\'; exit {status}\n')

    def run(self, times: int = 1) -> NodeHealthState:
        for _ in range(times):
            asyncio.run(self.runner.check(NODE))
        return self.nodes.health(NODE).state


@pytest.fixture
def checks(tmp_path: Path) -> Checks:
    return Checks(tmp_path)


@pytest.mark.parametrize("name", BROKEN)
def test_check_that_fails_by_itself_is_reported_and_leaves_its_node_healthy(tmp_path: Path, name: str) -> None:
    text, said = BROKEN[name]
    checks = Checks(tmp_path, timeout_s=1.0 if name == "slow" else 60.0)
    checks.put(name, text)

    assert checks.run() is NodeHealthState.HEALTHY
    assert said in checks.runner.broken[NODE][name]
    assert checks.nodes.health(NODE).evidence == ()


def test_trouble_that_a_program_says_passes_by_itself_needs_no_repair(checks: Checks) -> None:
    checks.put("disk", '#!/bin/sh\necho \'{"status": 2, "text": "full", "passes": true}\'; exit 2\n')
    assert checks.run() is NodeHealthState.BAD

    checks.verdict("disk", 0)

    assert checks.run(GOOD_TO_RETURN - 1) is NodeHealthState.BAD
    assert checks.run() is NodeHealthState.HEALTHY


def test_verdict_beside_a_broken_check_counts_and_a_mended_check_is_no_longer_reported(checks: Checks) -> None:
    checks.put("crash", BROKEN["crash"][0])
    checks.verdict("link", 2)
    assert checks.run() is NodeHealthState.BAD
    assert list(checks.runner.broken[NODE]) == ["crash"]

    checks.verdict("crash", 0)
    checks.run()

    assert checks.runner.broken[NODE] == {}


def test_suspect_is_not_cleared_while_the_check_that_spoke_against_it_is_broken(checks: Checks) -> None:
    checks.verdict("link", 1)
    checks.verdict("fan", 0)
    checks.run()
    checks.put("link", BROKEN["usage"][0])
    assert checks.run(GOOD_TO_CLEAR) is NodeHealthState.SUSPECT

    checks.verdict("link", 0)
    checks.put("fan", BROKEN["usage"][0])  # another one does not keep the node in doubt

    assert checks.run(GOOD_TO_CLEAR) is NodeHealthState.HEALTHY


def test_repair_is_not_confirmed_while_a_check_is_broken(checks: Checks) -> None:
    checks.verdict("fan", 0)
    checks.put("link", BROKEN["usage"][0])
    checks.nodes.take(NODE, HealthSign(at_s=1.0, source="gpu-xid", severity=Severity.SEVERE))
    checks.nodes.repair(NODE, 2.0)
    assert checks.run(GOOD_TO_RETURN + 1) is NodeHealthState.IN_REPAIR

    checks.verdict("link", 0)

    assert checks.run(GOOD_TO_RETURN) is NodeHealthState.HEALTHY


def test_folder_of_programs_that_is_gone_is_reported(checks: Checks) -> None:
    checks.folder.rmdir()

    checks.run()

    assert "can't be read: No such file" in checks.runner.broken[NODE]["programs"]


def test_what_a_check_leaves_running_does_not_hold_up_its_verdict_and_is_ended(checks: Checks, tmp_path: Path) -> None:
    """The program that is left holds the output open, so that its end does not show that the check has ended."""
    pid = tmp_path / "pid"
    checks.put("leaves", f"#!/bin/sh\nsleep 600 &\necho $! > {pid}\necho '{{\"status\": 1}}'; exit 1\n")
    begun_s = time.monotonic()

    assert checks.run() is NodeHealthState.SUSPECT
    assert time.monotonic() - begun_s < 60
    eventually(lambda: is_gone(int(pid.read_text())))


def is_gone(pid: int) -> bool:
    """Whether a process has ended; its end may not have been collected yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_checks_of_a_node_that_hang_hold_up_no_other_node(tmp_path: Path) -> None:
    """The check of the first node hangs for the whole test; the second has its verdict meanwhile."""
    folder = tmp_path / "checks"
    folder.mkdir()
    program = folder / "probe"
    program.write_text("#!/bin/sh\n[ $ROTA_NODE = n2 ] || sleep 600\necho '{\"status\": 2}'; exit 2\n")
    program.chmod(0o755)
    state = State(cluster(node("n1"), node("n2")))
    nodes = NodeWatch(state, tmp_path, lambda event: None)
    settings = HealthPart(checks=(), programs=folder, timeout=300.0, every=0.2)
    runner = CheckRunner(state, nodes, settings, tmp_path, None)

    async def until_bad() -> None:
        running = asyncio.create_task(runner.run())
        async with asyncio.timeout(60):
            while nodes.health(NodeId("n2")).state is not NodeHealthState.BAD:
                await asyncio.sleep(0.02)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(until_bad())

    assert nodes.health(NODE).state is NodeHealthState.HEALTHY
