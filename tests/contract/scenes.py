"""Small scenes that every driver must play alike, and the journal that each leaves behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = dict[str, Any]
NODES, PER_NODE = 2, 4
"""The cluster of all scenes: two nodes of four devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A job of a scene."""

    name: str
    tasks: int = 1
    gpus: int = 1
    priority: int = 0
    work_s: float = 1.0
    fails: bool = False
    at_s: float = 0.0
    """When it comes, in a scene with a clock of its own; elsewhere when those before it have been seen to."""


class Course:
    """What a journal says of a scene, by the names of its jobs."""

    def __init__(self, path: Path) -> None:
        lines = path.read_text(encoding="utf-8").splitlines()
        self.header: Json = json.loads(lines[0])
        self._names: dict[str, str] = {}
        self.story: list[tuple[str, str]] = []
        """What happened to whom, in order: (name, word)."""
        self.reasons: dict[str, list[str]] = {}
        self.starts: dict[str, list[list[Any]]] = {}
        for line in lines[1:]:
            self._take(json.loads(line))

    def _take(self, step: Json) -> None:
        for event in step["in"]:
            if event["event"] == "arrived":
                job = event["job"]
                self._names[job["id"]] = job.get("name") or job["id"]
            name = self._names.get(event.get("job_id") or event.get("job", {}).get("id", ""), "")
            if name:
                word = event["event"] if event["event"] != "ended" else event["end"]
                self.story.append((name, word))
        for order in step.get("out", ()):
            name = self._names.get(order["job_id"], "")
            self.story.append((name, f"-> {order['order']}"))
            if order["order"] == "start":
                self.starts.setdefault(name, []).append(order["on"])
        for job_id, reason in step.get("waits", ()):
            self.reasons.setdefault(self._names.get(job_id, ""), []).append(reason["code"])

    def of(self, name: str) -> list[str]:
        """What happened to one job."""
        return [word for who, word in self.story if who == name]

    def before(self, one: tuple[str, str], other: tuple[str, str]) -> bool:
        """Whether something happened before something else did, each for the first time."""
        return self.story.index(one) < self.story.index(other)

    def slots(self) -> Iterator[tuple[str, list[Any]]]:
        """Every slot that was ever ordered."""
        for name, placements in self.starts.items():
            for placement in placements:
                for slot in placement:
                    yield name, slot


SEQUENCE = (Part(name="first", tasks=3, gpus=2, work_s=2.0), Part(name="second", tasks=2, gpus=2, at_s=0.5))
URGENT = (
    Part(name="low", tasks=2, gpus=4, work_s=4.0),
    Part(name="high", tasks=1, gpus=4, priority=9, work_s=1.0, at_s=1.0),
)
FAILURE = (Part(name="bad", gpus=1, work_s=0.5, fails=True), Part(name="good", gpus=1, work_s=0.5, at_s=0.1))
