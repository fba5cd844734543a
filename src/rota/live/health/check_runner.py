"""Runs the checks of nodes: at intervals, before and after large jobs, and more often, with self-tests, on suspicion.

Rota's own checks look at this machine, whose node is the first; other nodes are emulated on it. A user's own programs
run once for every node, with `ROTA_NODE` in their environment. A check that fails by itself, or takes too long, is
broken: it says nothing about its node, and is reported as broken until it works.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rota.core.model.job import NodeId
from rota.core.state.state import State
from rota.files.up_file import HealthPart
from rota.health.checks.result import CheckResult, broken_check
from rota.health.node_state import HealthSign, NodeHealthState, Severity
from rota.live.health.check_program import CheckProgram, run_program
from rota.live.health.node_watch import NodeWatch, passed
from rota.store import clock

log = logging.getLogger("rota.live")
SELF_TESTS = ("matmul", "bandwidth", "all-reduce", "dcgm-diag")
LOOK_S = 1.0
FRESH_S = 60.0
"""Results of checks that are younger count as those before a large job."""
SUSPECT_PART = 0.1
"""A node that is not healthy is checked at this part of the interval."""
PASSING_S = 5.0
"""A node whose trouble can pass by itself, as a full disk does, is checked again after this long."""
AT_ONCE = 4
"""Nodes whose checks run at the same time, at most."""


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
        self._running: dict[NodeId, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(AT_ONCE)
        self.broken: dict[NodeId, dict[str, str]] = {}
        """The checks that could not tell anything about a node at their last run, with the reason."""

    async def run(self) -> None:
        """Check until cancelled. A check that takes long holds up no other node."""
        try:
            while True:
                every_s = self._settings.every
                await asyncio.sleep(min(LOOK_S, max(every_s / 4, 0.05)) if every_s else LOOK_S)
                now_s = clock.now_s()
                self._watch.look(now_s)
                for task in [task for task in self._running.values() if task.done()]:
                    task.result()  # a fault of ours must not go unnoticed
                for node_id in self._node_ids() if every_s else ():
                    if now_s >= self._due_s.setdefault(node_id, now_s + self._first_s(node_id)):
                        self._begin(node_id)
        finally:
            for task in self._running.values():
                task.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    def soon(self, nodes: Sequence[str]) -> None:
        """Check nodes at the next look, as after a large job or an error."""
        for name in nodes:
            self._due_s[NodeId(name)] = 0.0

    async def check(self, node_id: NodeId) -> None:
        """Run all checks of a node, or wait for those that run."""
        await asyncio.shield(self._begin(node_id))

    def _begin(self, node_id: NodeId) -> asyncio.Task[None]:
        """Return the round of checks of a node that runs, or else a new one."""
        task = self._running.get(node_id)
        if task is None or task.done():
            task = self._running[node_id] = asyncio.get_running_loop().create_task(self._check(node_id))
        return task

    async def _check(self, node_id: NodeId) -> None:
        """Run all checks of a node, and take in what they found together: the worst of them."""
        async with self._places:
            self._due_s[node_id] = clock.now_s() + self._settings.every  # if asked for meanwhile, it is checked again
            found = await asyncio.gather(*(self._run(program, node_id) for program in self._programs(node_id)))
        results = [*self._folder_fault(), *found]
        now_s = self._checked_s[node_id] = clock.now_s()
        broken = [result for result in results if result.broken]
        self._note_broken(node_id, broken)
        worst = max((each for each in results if not each.broken), key=lambda each: each.severity.value, default=None)
        if worst is not None and worst.severity is not Severity.GOOD:
            sign = HealthSign(
                at_s=now_s, source=worst.check, severity=worst.severity, text=worst.text, passes=worst.passes
            )
            log.warning("node-check", extra={"node": node_id, "check": worst.check, "why": worst.text})
            self._watch.take(node_id, sign)
        elif worst is not None and not self._leaves_doubt(node_id, broken):
            self._watch.take(node_id, passed(worst.check, now_s))
        health = self._watch.health(node_id)
        if health.state is not NodeHealthState.HEALTHY:
            soon_s = self._settings.every * SUSPECT_PART
            again_s = min(soon_s, PASSING_S) if health.passes else soon_s
            self._due_s[node_id] = min(self._due_s[node_id], now_s + again_s)

    def _leaves_doubt(self, node_id: NodeId, broken: Sequence[CheckResult]) -> bool:
        """Whether checks that are broken keep a node from being cleared by the others.

        A repair is confirmed by all tests; a suspect is cleared by those that spoke against it, at least.
        """
        health = self._watch.health(node_id)
        if health.state is NodeHealthState.IN_REPAIR:
            return bool(broken)
        against = {sign.source for sign in health.evidence}
        return any(result.check in against for result in broken)

    def _note_broken(self, node_id: NodeId, broken: Sequence[CheckResult]) -> None:
        before = self.broken.get(node_id, {})
        now = {result.check: result.text for result in broken}
        for check, why in now.items():
            if check not in before:
                log.warning("check-broken", extra={"node": node_id, "check": check, "why": why})
        self.broken[node_id] = now

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
        health = self._watch.health(node_id)
        if names and health.state is not NodeHealthState.HEALTHY and not health.passes:
            names += [name for name in SELF_TESTS if name not in names]
        own = (sys.executable, "-m", "rota.health.checks")
        programs = [CheckProgram(name=name, command=(*own, name, str(self._home)), is_own=True) for name in names]
        folder = self._settings.programs
        if folder is not None and not self._folder_fault():
            found = sorted(path for path in folder.iterdir() if path.is_file() and os.access(path, os.X_OK))
            programs += [CheckProgram(name=path.name, command=(str(path),)) for path in found]
        return programs

    def _folder_fault(self) -> list[CheckResult]:
        """Return why the folder of the user's own programs can't be read, as a broken check."""
        try:
            if self._settings.programs is not None:
                next(self._settings.programs.iterdir(), None)
        except OSError as error:
            return [broken_check("programs", f"the folder {self._settings.programs} can't be read: {error.strerror}")]
        return []

    async def _run(self, program: CheckProgram, node_id: NodeId) -> CheckResult:
        env = {**os.environ, "ROTA_NODE": str(node_id)}
        if program.is_own:  # a user's program may be of another version of Python
            env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        if self._nvml is not None:
            env["ROTA_NVML"] = self._nvml
        return await run_program(program, env, self._settings.timeout)
