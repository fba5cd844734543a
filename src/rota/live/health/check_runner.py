"""Runs the checks of nodes: at intervals, before and after large jobs, and more often, with self-tests, on suspicion.

Rota's own checks look at this machine, whose node is the first; other nodes are emulated on it. A user's own programs
run once for every node, with `ROTA_NODE` in their environment. A check that takes too long, or fails by itself, is a
warning at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rota.core.model.job import NodeId
from rota.core.state.state import State
from rota.files.up_file import HealthPart
from rota.health.checks.result import CheckResult, decode_result
from rota.health.node_state import HealthSign, NodeHealthState, Severity
from rota.live.health.node_watch import NodeWatch
from rota.store import clock

log = logging.getLogger("rota.live")
SELF_TESTS = ("matmul", "bandwidth", "all-reduce", "dcgm-diag")
LOOK_S = 1.0
FRESH_S = 60.0
"""Results of checks that are younger count as those before a large job."""
SUSPECT_PART = 0.1
"""A node that is not healthy is checked at this part of the interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckProgram:
    """A program that checks a node."""

    name: str
    command: tuple[str, ...]


class CheckRunner:
    """All checks of all nodes."""

    def __init__(self, state: State, watch: NodeWatch, settings: HealthPart, home: Path, nvml: str | None) -> None:
        self._state = state
        self._watch = watch
        self._settings = settings
        self._home = home
        self._nvml = nvml
        self._due_s: dict[NodeId, float] = {}
        self._checked_s: dict[NodeId, float] = {}
        self.results: dict[NodeId, dict[str, CheckResult]] = {}
        """The last result of each check on each node."""

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await asyncio.sleep(min(LOOK_S, max(self._settings.every / 4, 0.05)) if self._settings.every else LOOK_S)
            now_s = clock.now_s()
            self._watch.look(now_s)
            if self._settings.every:
                for node_id in self._node_ids():
                    if now_s >= self._due_s.setdefault(node_id, now_s + self._first_s(node_id)):
                        await self.check(node_id)

    def soon(self, nodes: Sequence[str]) -> None:
        """Check nodes at the next look, as after a large job or an error."""
        for name in nodes:
            self._due_s[NodeId(name)] = 0.0

    async def check(self, node_id: NodeId) -> None:
        """Run all checks of a node, and take in what they found together: the worst of them."""
        programs = self._programs(node_id)
        results = await asyncio.gather(*(self._run(program, node_id) for program in programs))
        self._checked_s[node_id] = clock.now_s()
        self.results[node_id] = {result.check: result for result in results}
        now_s = clock.now_s()
        worst = max(results, key=lambda result: result.severity.value, default=None)
        if worst is not None:
            sign = HealthSign(at_s=now_s, source=worst.check, severity=worst.severity, text=worst.text)
            if worst.severity is not Severity.GOOD:
                log.warning("node-check", extra={"node": node_id, "check": worst.check, "why": worst.text})
            self._watch.take(node_id, sign)
        is_healthy = self._watch.health(node_id).state is NodeHealthState.HEALTHY
        self._due_s[node_id] = now_s + self._settings.every * (1.0 if is_healthy else SUSPECT_PART)

    def stale(self, node_ids: Sequence[NodeId]) -> list[NodeId]:
        """Return those of these nodes that have checks, none of which ran in the last minute."""
        if not self._settings.every:
            return []
        now_s = clock.now_s()
        return [
            node_id
            for node_id in node_ids
            if now_s - self._checked_s.get(node_id, 0.0) > FRESH_S and self._programs(node_id)
        ]

    def _node_ids(self) -> list[NodeId]:
        return [account.node.id for account in self._state.inventory.nodes if not account.removed]

    def _first_s(self, node_id: NodeId) -> float:
        """Return how long after the start a node is first checked: nodes one after the other, not all at once."""
        nodes = self._node_ids()
        return self._settings.every * nodes.index(node_id) / max(len(nodes), 1) / 2

    def _programs(self, node_id: NodeId) -> list[CheckProgram]:
        names: list[str] = list(self._settings.checks) if node_id == self._node_ids()[0] else []
        if self._watch.health(node_id).state is not NodeHealthState.HEALTHY and names:
            names += [name for name in SELF_TESTS if name not in names]
        own = (sys.executable, "-m", "rota.health.checks")
        programs = [CheckProgram(name=name, command=(*own, name, str(self._home))) for name in names]
        if self._settings.programs is not None:
            with contextlib.suppress(OSError):
                found = sorted(path for path in self._settings.programs.iterdir() if os.access(path, os.X_OK))
                programs += [CheckProgram(name=path.name, command=(str(path),)) for path in found if path.is_file()]
        return programs

    async def _run(self, program: CheckProgram, node_id: NodeId) -> CheckResult:
        env = {
            **os.environ,
            "ROTA_NODE": str(node_id),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        if self._nvml is not None:
            env["ROTA_NVML"] = self._nvml
        try:
            process = await asyncio.create_subprocess_exec(
                *program.command, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
            )
        except OSError as error:
            text = f"the check can't be run: {error.strerror}"
            return CheckResult(check=program.name, severity=Severity.WARNING, text=text)
        try:
            output, _ = await asyncio.wait_for(process.communicate(), self._settings.timeout)
        except (TimeoutError, asyncio.CancelledError) as ended:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            if isinstance(ended, asyncio.CancelledError):
                raise
            text = f"the check took longer than {self._settings.timeout:g} s"
            return CheckResult(check=program.name, severity=Severity.WARNING, text=text)
        return decode_result(program.name, process.returncode or 0, output)
