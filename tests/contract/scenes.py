"""Small scenes that every driver must play alike, and the journal that each leaves behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rota.core.messages.decisions import DecisionKind

Json = dict[str, Any]
NODES, PER_NODE = 2, 4
"""The cluster of all scenes: two nodes of four devices."""
K = DecisionKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A job of a scene."""

    name: str
    tasks: int = 1
    gpus: int = 1
    priority: int = 0
    work_s: float = 1.0
    fails: bool = False
    elastic: tuple[int, int] | None = None
    """The fewest and the most tasks."""
    at_s: float = 0.0
    """When it is submitted in virtual time; in real time, when the jobs before it have run for a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Jobs under a policy, and what happens to them."""

    policy: str
    parts: tuple[Part, ...]
    needs: frozenset[DecisionKind]
    """The kinds of decision that it shows; a driver that supports them all must play it."""
    placement: str | None = None
    cancels: str | None = None
    """The job that is cancelled after all were submitted."""
    loses: str | None = None
    """The node that fails after all were submitted."""
    at_s: float = 0.0
    """When that happens, in virtual time."""


class Course:
    """What a journal says of a scene, by the names of its jobs."""

    def __init__(self, path: Path) -> None:
        lines = path.read_text(encoding="utf-8").splitlines()
        self.header: Json = json.loads(lines[0])
        self._names: dict[str, str] = {}
        self.story: list[tuple[str, str]] = []
        """Events and orders by job, in order: (name, word); an order is marked with an arrow."""
        self.reasons: dict[str, list[str]] = {}
        self.placements: dict[str, list[tuple[str, list[Any]]]] = {}
        """What each job was ordered to hold, in order: (order, slots)."""
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
            if "on" in order:
                self.placements.setdefault(name, []).append((order["order"], order["on"]))
        for job_id, reason in step.get("waits", ()):
            self.reasons.setdefault(self._names.get(job_id, ""), []).append(reason["code"])

    @property
    def starts(self) -> dict[str, list[list[Any]]]:
        """The placements of all starts, by job."""
        return {name: [on for order, on in held if order == "start"] for name, held in self.placements.items()}

    def of(self, name: str) -> list[str]:
        """Events and orders of one job."""
        return [word for job, word in self.story if job == name]

    def before(self, one: tuple[str, str], other: tuple[str, str]) -> bool:
        """Whether something happened before something else did, each for the first time."""
        return self.story.index(one) < self.story.index(other)

    def slots(self) -> Iterator[tuple[str, list[Any]]]:
        """Every slot that was ever ordered."""
        for name, held in self.placements.items():
            for _, placement in held:
                for slot in placement:
                    yield name, slot


SEQUENCE = Scene(
    policy="priority",
    needs=frozenset({K.START}),
    parts=(Part(name="first", tasks=3, gpus=2, work_s=2.0), Part(name="second", tasks=2, gpus=2, at_s=0.5)),
)
URGENT = Scene(
    policy="priority",
    needs=frozenset({K.START, K.STOP}),
    parts=(
        Part(name="low", tasks=2, gpus=4, work_s=4.0),
        Part(name="high", tasks=1, gpus=4, priority=9, work_s=1.0, at_s=1.0),
    ),
)
FAILURE = Scene(
    policy="priority",
    needs=frozenset({K.START}),
    parts=(Part(name="bad", gpus=1, work_s=0.5, fails=True), Part(name="good", gpus=1, work_s=0.5, at_s=0.1)),
)
RESIZE = Scene(
    policy="afs-p",
    needs=frozenset({K.START, K.STOP, K.RESIZE}),
    parts=(
        Part(name="one", tasks=8, elastic=(1, 8), work_s=6.0),
        Part(name="two", tasks=8, elastic=(1, 8), work_s=6.0, at_s=1.0),
    ),
)
SLICES = Scene(
    policy="gandiva:quantum_s=1,pack=false",
    needs=frozenset({K.SUSPEND, K.RESUME, K.SHARE, K.MOVE}),
    parts=(
        Part(name="one", tasks=2, gpus=4, work_s=3.0),
        Part(name="two", tasks=2, gpus=4, work_s=3.0, at_s=0.5),
    ),
)
MOVE = Scene(
    policy="fifo:consolidate_s=0.5",
    placement="spread",
    needs=frozenset({K.MOVE}),
    parts=(Part(name="one", gpus=2, work_s=6.0), Part(name="two", gpus=2, work_s=6.0, at_s=0.2)),
)
SHARE = Scene(
    policy="olympian",
    needs=frozenset({K.SHARE}),
    parts=(
        Part(name="one", tasks=2, gpus=4, work_s=3.0),
        Part(name="two", tasks=2, gpus=4, work_s=1.0, at_s=0.5),
    ),
)
ROUNDS = Scene(
    policy="gavel/max_min_fairness:compat=none,round_s=1",
    needs=frozenset({K.LEASE}),
    parts=(Part(name="one", gpus=4, work_s=3.5), Part(name="two", gpus=4, work_s=3.5)),
)
CANCEL = Scene(
    policy="priority",
    needs=frozenset({K.STOP}),
    parts=(Part(name="one", tasks=2, gpus=4, work_s=60.0), Part(name="two", tasks=2, gpus=4, at_s=0.5)),
    cancels="one",
    at_s=1.5,
)
LOST_NODE = Scene(
    policy="priority",
    needs=frozenset({K.START}),
    parts=(Part(name="one", gpus=4, work_s=4.0), Part(name="two", gpus=4, work_s=4.0)),
    loses="n1",
    at_s=1.0,
)
