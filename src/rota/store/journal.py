"""Journals as files: a header line with the setup of the engine, then one JSON line per step."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rota.core.codec.snapshot import Snapshot
from rota.core.codec.values import (
    decode_decision,
    decode_event,
    decode_reason,
    encode_decision,
    encode_event,
    encode_reason,
)
from rota.core.errors import RotaError
from rota.core.messages.decisions import Decision
from rota.core.messages.events import Event, NodeAdded
from rota.core.messages.reasons import Reason
from rota.core.model.cluster import Cluster
from rota.core.model.job import JobId
from rota.core.model.labels import Taint
from rota.scenario import Scenario, decode_scenario, encode_scenario

PARTIAL = ".partial"
"""The ending of a journal whose run has not ended."""
VERSION = 1
_FIRST = ("policy", "placement", "tenancy", "profiles")
"""Keys that stand at the head of the line."""

_BROKEN = (ValueError, KeyError, TypeError, AttributeError, RotaError)
"""What decoding raises for an invalid line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalHeader:
    """What has to be known to run a journal again."""

    scenario: Scenario
    """One policy, the placement that was used, and the cluster as a value."""
    about: str = ""
    """Where the run comes from, for people."""
    held_out_error: float | None = None
    """The median error of the speeds that were estimated for the policy, on figures that were held out."""
    snapshot: Snapshot | None = None
    """The state in which the engine began; None: an empty one at time 0."""

    def __post_init__(self) -> None:
        if len(self.scenario.policies) != 1 or self.scenario.placement is None:
            raise RotaError("a journal's header needs one policy and its placement")
        if not isinstance(self.scenario.cluster, Cluster):
            raise RotaError(f"a journal's header needs the cluster itself, not {self.scenario.cluster!r}")

    @property
    def cluster(self) -> Cluster:
        """The nodes at the beginning."""
        assert isinstance(self.scenario.cluster, Cluster)
        return self.scenario.cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step: events, decisions, and the reasons to wait that changed."""

    number: int
    now_s: float
    events: tuple[Event, ...]
    decisions: tuple[Decision, ...]
    waits: tuple[tuple[JobId, Reason], ...]


def encode_header(header: JournalHeader) -> dict[str, Any]:
    """A header as JSON values: the scenario's, with what else is known of the run."""
    rest = encode_scenario(header.scenario)
    if "estimate" in rest:
        rest["estimate"]["held_out_error"] = header.held_out_error
    first = {name: rest.pop(name) for name in _FIRST}
    value: dict[str, Any] = {"rota_journal": VERSION, **first, "about": header.about, **rest}
    if header.snapshot is not None:
        value["snapshot"] = dataclasses.asdict(header.snapshot)
    return value


def encode_step(
    number: int,
    now_s: float,
    events: Sequence[Event],
    decisions: Sequence[Decision],
    waits: Sequence[tuple[JobId, Reason]],
    node_names: list[str],
) -> dict[str, Any]:
    """Return a step as JSON values; the names of nodes that it adds are appended to `node_names`."""
    added = [str(event.node.id) for event in events if isinstance(event, NodeAdded)]
    if added:
        known = set(node_names)
        node_names.extend(name for name in dict.fromkeys(added) if name not in known)
    line: dict[str, Any] = {
        "n": number,
        "t": now_s,
        "in": [encode_event(event) for event in events],
    }
    if decisions:
        line["out"] = [encode_decision(decision, node_names) for decision in decisions]
    if waits:
        line["waits"] = [[job_id, encode_reason(reason)] for job_id, reason in waits]
    return line


class JournalWriter:
    """Appends steps to a file. Use as a context manager.

    Until the run has ended, the file has the ending of an interrupted journal, so that part of a run is never taken for
    a whole one.
    """

    def __init__(self, path: Path, header: JournalHeader) -> None:
        self._path = path
        self._partial = path.with_name(path.name + PARTIAL)
        self._file: IO[str] = self._partial.open("w", encoding="utf-8", newline="\n")
        self._names = [str(node.id) for node in header.cluster.nodes]
        self._number = 0
        self._file.write(_dump(encode_header(header)))

    def append(
        self,
        now_s: float,
        events: Sequence[Event],
        decisions: Sequence[Decision],
        waits: Sequence[tuple[JobId, Reason]],
    ) -> None:
        """Write one step."""
        line = encode_step(self._number, now_s, events, decisions, waits, self._names)
        self._number += 1
        self._file.write(_dump(line))

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        self._file.close()
        if kind is None:
            self._partial.replace(self._path)


def _dump(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False) + "\n"


class JournalReader:
    """Reads a journal step by step; refuses one with a gap."""

    def __init__(self, path: Path) -> None:
        self._path = path
        if path.name.endswith(PARTIAL):
            raise RotaError(f"{path}: the run was interrupted, and its journal lacks the end; run it again")
        try:
            with path.open("rb") as file:
                first = file.readline()
        except OSError as err:
            raise RotaError(f"{path}: can't be read: {err}") from err
        self.header = self._read_header(first)

    def _read_header(self, line: bytes) -> JournalHeader:
        try:
            value = json.loads(line)
            version = value["rota_journal"]
        except (ValueError, KeyError, TypeError):
            raise RotaError(f"{self._path}:1: this is not a journal of Rota") from None
        if version != VERSION:
            raise RotaError(f"{self._path}:1: the journal's version is {version}; this Rota reads {VERSION}")
        try:
            estimate = value.get("estimate") or {}
            return JournalHeader(
                scenario=decode_scenario(value),
                about=value["about"],
                held_out_error=estimate.get("held_out_error"),
                snapshot=_snapshot(value.get("snapshot")),
            )
        except _BROKEN as err:
            raise RotaError(f"{self._path}:1: a broken header: {type(err).__name__}: {err}") from err

    def steps(self) -> Iterator[Step]:
        """Yield the steps in order."""
        index_by_node = {str(node.id): index for index, node in enumerate(self.header.cluster.nodes)}
        expected = 0 if self.header.snapshot is None else None
        with self._path.open("rb") as file:
            next(file)
            for number, line in enumerate(file, start=2):
                try:
                    step = _read_step(json.loads(line), index_by_node)
                except _BROKEN as err:
                    if not line.endswith(b"\n"):
                        raise RotaError(
                            f"{self._path}:{number}: the line is cut off: the run, or the copy of its journal, was "
                            "interrupted; run or copy it again"
                        ) from err
                    raise RotaError(f"{self._path}:{number}: a broken step: {type(err).__name__}: {err}") from err
                if expected is not None and step.number != expected:
                    raise RotaError(f"{self._path}:{number}: step {step.number} follows {expected - 1}; there is a gap")
                expected = step.number + 1
                yield step


def _snapshot(value: dict[str, Any] | None) -> Snapshot | None:
    if value is None:
        return None
    return Snapshot(
        now_s=value["now_s"],
        seq=value["seq"],
        jobs=tuple(value["jobs"]),
        drained=tuple(value["drained"]),
        down=tuple(value["down"]),
        removed=tuple(value.get("removed", ())),
        others=tuple((node, devices, cpu, memory) for node, devices, cpu, memory in value.get("others", ())),
        trust=tuple((node, trust) for node, trust in value.get("trust", ())),
        reserved=tuple((node, tuple(Taint(*each) for each in taints)) for node, taints in value.get("reserved", ())),
        past=value.get("past", {}),
        memory=value.get("memory"),
    )


def _read_step(value: dict[str, Any], index_by_node: dict[str, int]) -> Step:
    events = tuple(decode_event(event) for event in value["in"])
    for event in events:
        if isinstance(event, NodeAdded):
            index_by_node.setdefault(str(event.node.id), len(index_by_node))
    return Step(
        number=value["n"],
        now_s=value["t"],
        events=events,
        decisions=tuple(decode_decision(decision, index_by_node) for decision in value.get("out", ())),
        waits=tuple((JobId(job_id), decode_reason(reason)) for job_id, reason in value.get("waits", ())),
    )
