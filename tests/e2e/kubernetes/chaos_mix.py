"""Faults of many kinds at once, at random, while jobs come and go; and what must be true afterwards."""

from __future__ import annotations

import random
import re
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from e2e.kubernetes.bad_weather import BadWeather
from e2e.kubernetes.bed import Bed, KubeError
from e2e.kubernetes.replica import Replica, View, gang

Json = dict[str, Any]
NOW = {"gracePeriodSeconds": 0}
SLOW_S = 0.5
LONGEST_PAUSE_S = 15.0
JOB_EVERY_S = 1.0
FAULT_EVERY_S = 4.0
MOST_WAITING = 60
_DECIDED = (
    '"rate":0.0',
    '"stop"',
    '"resize"',
    '"interrupted"',
    '"start-failed"',
    '"stopped"',
    '"job-cancelled"',
    '"job-ended"',
)


class ChaosMix:
    """Two replicas, each behind bad weather of its own, one of them with a clock that is wrong."""

    def __init__(self, bed: Bed, replicas: list[tuple[Replica, BadWeather]], clock: Path | None, seed: int) -> None:
        self._bed = bed
        self._replicas = replicas
        self._clock = clock
        """The file from which the second replica reads its wall clock; None where there is no libfaketime."""
        self._random = random.Random(seed)
        self._jobs = 0
        self._paused: dict[int, float] = {}
        self._bad_until_s = 0.0
        self.faults: Counter[str] = Counter()
        self.forced: set[str] = set()
        """Pods that the test deleted by force, by uid."""
        self.seen: dict[str, tuple[str, str, bool]] = {}
        """Every pod by uid: its name, the id of its job, and whether it was seen running."""

    def run(self, length_s: float) -> None:
        """Make jobs and faults for so long, and then let everything be well again."""
        until_s = time.monotonic() + length_s
        job_s = fault_s = time.monotonic()
        while (now_s := time.monotonic()) < until_s:
            if now_s >= job_s:
                job_s = now_s + self._random.expovariate(1 / JOB_EVERY_S)
                self._submit()
            if now_s >= fault_s:
                fault_s = now_s + self._random.expovariate(1 / FAULT_EVERY_S)
                self._fault()
            self._mend(now_s)
            self._look()
            time.sleep(0.2)
        self._mend(float("inf"))

    def _submit(self) -> None:
        pods = self._look()
        if sum(not each["spec"].get("nodeName") for each in pods) > MOST_WAITING:
            return
        self._jobs += 1
        rng = self._random
        urgent = {"priorityClassName": "urgent"} if rng.random() < 0.2 else {}
        notes = {"hollow/run-s": str(rng.choice([2, 5, 20, 60])), "rota.dev/estimate": "10s"}
        for value in gang(f"j{self._jobs}", rng.choice([1, 1, 2, 4]), rng.choice([1, 2, 4]), notes=notes, **urgent):
            self._bed.admin.make(value)

    def _fault(self) -> None:
        faults: dict[str, Callable[[], None]] = {
            "stopped (SIGSTOP)": self._stop_one,
            "killed": self._kill_one,
            "slow API server": lambda: self._spoil(delay_s=SLOW_S),
            "refused requests": lambda: self._spoil(refuses=0.2),
            "expired watches": lambda: self._spoil(expires=True),
            "watches cut": self._cut,
            "forced deletion": self._force,
            "forced deletions": lambda: self._force(8),
            **({} if self._clock is None else {"clock set": self._set_clock}),
        }
        name = self._random.choice(list(faults))
        self.faults[name] += 1
        faults[name]()

    def _stop_one(self) -> None:
        index = self._random.randrange(len(self._replicas))
        process = self._replicas[index][0].process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGSTOP)
            self._paused[index] = time.monotonic() + self._random.uniform(1.0, LONGEST_PAUSE_S)

    def _kill_one(self) -> None:
        replica = self._random.choice(self._replicas)[0]
        if replica.process is not None and replica.process.poll() is None:
            replica.kill()

    def _spoil(self, **how: Any) -> None:
        for _, weather in self._replicas:
            for name, value in how.items():
                setattr(weather, name, value)
        self._bad_until_s = time.monotonic() + self._random.uniform(2.0, 10.0)

    def _cut(self) -> None:
        for _, weather in self._replicas:
            weather.cut_watches()

    def _set_clock(self) -> None:
        assert self._clock is not None
        set_clock(self._clock, self._random.choice([-3600, -90, 0, 90, 3600]))

    def _force(self, most: int = 1) -> None:
        """Delete pods at once, as a user in a hurry does."""
        pods = self._look()
        for each in self._random.sample(pods, min(most, len(pods))):
            meta = each["metadata"]
            self.forced.add(meta["uid"])
            try:
                self._bed.admin.delete(f"/api/v1/namespaces/default/pods/{meta['name']}", NOW)
            except KubeError as error:
                if error.status != 404:
                    raise

    def _mend(self, now_s: float) -> None:
        for index in [index for index, until_s in self._paused.items() if now_s >= until_s]:
            del self._paused[index]
            process = self._replicas[index][0].process
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGCONT)
        for index, (replica, _) in enumerate(self._replicas):
            if index not in self._paused and (replica.process is None or replica.process.poll() is not None):
                replica.launch()
        if now_s >= self._bad_until_s:
            for _, weather in self._replicas:
                weather.delay_s, weather.refuses, weather.expires = 0.0, 0.0, False

    def _look(self) -> list[Json]:
        pods = self._bed.admin.items("/api/v1/namespaces/default/pods")
        for each in pods:
            meta = each["metadata"]
            _, _, ran = self.seen.get(meta["uid"], ("", "", False))
            job = (meta.get("annotations") or {}).get("rota.dev/id", "")
            self.seen[meta["uid"]] = (meta["name"], job, ran or each["status"].get("phase") == "Running")
        return pods

    # -- what must be true -------------------------------------------------------------------------

    def undecided(self) -> list[str]:
        """Pods of jobs that ran, that Rota deleted, though no journal has a decision about their job."""
        steps = [step for replica, _ in self._replicas for step in journal_of(replica)]
        ended = {name for name, _ in self._deleted()}
        running = {name: job for _, (name, job, ran) in self.seen.items() if ran and job}
        found = []
        for name in sorted(ended & running.keys()):
            about = [step for step in steps if f'"{running[name]}"' in step]
            has_run = any(f'"event":"started","job_id":"{running[name]}"' in step for step in about)
            wanted = re.compile("|".join(each.replace("{job}", re.escape(running[name])) for each in _DECIDED))
            if has_run and not any(wanted.search(step) for step in about):
                found.append(f"{name} of {running[name]}: {about[-3:]}")
        return found

    def _deleted(self) -> list[tuple[str, str]]:
        """The pods that Rota evicted or deleted, by name, with the verb."""
        found = []
        for each in self._bed.audited():
            about = each.get("objectRef") or {}
            is_eviction = each["verb"] == "create" and about.get("subresource") == "eviction"
            is_done = (each.get("responseStatus") or {}).get("code", 500) < 300
            if about.get("resource") == "pods" and is_done and (is_eviction or each["verb"] == "delete"):
                found.append((str(about.get("name")), each["verb"]))
        return found

    @property
    def deletions(self) -> int:
        """How many pods Rota has evicted or deleted."""
        return len(self._deleted())


def set_clock(file: Path, by_s: int) -> None:
    """Set the wall clock that is read from a file."""
    draft = file.with_suffix(".draft")
    draft.write_text(f"{by_s:+d}\n")
    draft.replace(file)


def journal_of(replica: Replica) -> list[str]:
    """The steps of a replica's journal, of all segments."""
    place = replica.folder / "data" / "rota.db"
    if not place.exists():
        return []
    with sqlite3.connect(f"file:{place}?mode=ro", uri=True) as connection:
        return [str(row[0]) for row in connection.execute("select body from steps order by n")]


def held_by_pods(bed: Bed, view: View) -> dict[str, int]:
    """Devices by node that pods hold, as the API server says."""
    found = {each["metadata"]["name"]: 0 for each in bed.admin.items("/api/v1/nodes")}
    for each in view.pods().values():
        node = each["spec"].get("nodeName")
        if node and each["status"].get("phase") not in ("Succeeded", "Failed"):
            limits = each["spec"]["containers"][0]["resources"].get("limits") or {}
            found[node] = found.get(node, 0) + int(limits.get("nvidia.com/gpu", 0))
    return found
