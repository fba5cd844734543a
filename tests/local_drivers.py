"""A local driver with real supervisors and tasks, and all that it has answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from builders import job, node, on
from rota.core.engine.driver import ExitDetail
from rota.core.messages.events import Event
from rota.core.model.placement import Placement
from rota.drivers.local.attempt_controller import AttemptController
from rota.drivers.local.launch_order import LaunchOrder
from rota.drivers.local.settings import Settings
from rota.files.job import job_file, launch_of


class Bench:
    """A driver on one node of four devices, and all that it has answered."""

    def __init__(self, home: Path, *, overlaps: bool = False, **settings: Any) -> None:
        home.mkdir(exist_ok=True)
        self.home = home
        self._closed = False
        self.answers: list[tuple[Event, ExitDetail]] = []
        self.driver = AttemptController(
            [node("n1")],
            Settings(home=home, **settings),
            lambda *answer: self.answers.append(answer),
            overlaps=overlaps,
        )

    def close(self) -> None:
        """The server is gone."""
        if not self._closed:
            self._closed = True
            self.driver.close()

    def order(self, run: str, workers: int = 1, name: str = "1") -> LaunchOrder:
        """A start order for a shell command."""
        file = job_file({"run": run, "workers": workers, "resources": {"gpus": 1}, "checkpoint": {"grace": 0.5}})
        placement: Placement = on("n1", workers, tasks=workers)
        wanted = job(name, workers=workers)
        return LaunchOrder(
            job=wanted, launch=launch_of(file, wanted.id), placement=placement, attempt=1, failures=0, work_s=0.0
        )

    def events(self, kind: type[Event]) -> list[Event]:
        """The answers of one kind."""
        return [event for event, _ in self.answers if isinstance(event, kind)]

    def folder(self, rank: int = 0, name: str = "1") -> Path:
        """Where a task of a job runs."""
        return self.home / "runs" / name / "1" / str(rank)

    def state(self, rank: int = 0, name: str = "1") -> dict[str, Any]:
        """What a task's supervisor wrote last."""
        try:
            return dict(json.loads((self.folder(rank, name) / "state.json").read_text()))
        except FileNotFoundError:
            return {}


async def until(holds: Callable[[], object], within_s: float = 60.0) -> None:
    """Let the driver work until something holds."""
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.01)


def with_driver(tmp_path: Path, course: Callable[[Bench], Awaitable[None]], **settings: Any) -> None:
    """Run a course of events against a driver, which is let go afterwards."""

    async def main() -> None:
        bench = Bench(tmp_path / "home", **settings)
        try:
            await course(bench)
        finally:
            bench.close()

    asyncio.run(main())
