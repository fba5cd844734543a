"""Journals as files: a header line with the setup of the engine, then one JSON line per step."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from rota.core.codec.snapshot import Snapshot
from rota.core.codec.values import (
    decode_cluster,
    decode_decision,
    decode_event,
    decode_reason,
    encode_cluster,
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

VERSION = 1

_BROKEN = (ValueError, KeyError, TypeError, AttributeError, RotaError)
"""What decoding raises for an invalid line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalHeader:
    """What has to be known to run a journal again."""

    cluster: Cluster
    policy: str
    placement: str
    tenancy: str
    profiles: str | None = None
    estimate: dict[str, Any] | None = None
    """What policies knew of the profiles, if not all: the fields of an `EstimateSpec`, and the error."""
    about: str = ""
    seed: int = 0
    restart_s: float = 0.0
    profiles_sha256: str | None = None
    """What tells the file of speeds from any other, so that a replay does not use another one by the same name."""
    speed: Mapping[str, Any] = field(default_factory=dict)
    """Options of the speed model, as `encode_speed` writes them."""
    snapshot: Snapshot | None = None
    """The state in which the engine began, if not in an empty one at time 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step: events, decisions, and the reasons to wait that changed."""

    number: int
    now_s: float
    events: tuple[Event, ...]
    decisions: tuple[Decision, ...]
    waits: tuple[tuple[JobId, Reason], ...]


def encode_header(header: JournalHeader) -> dict[str, Any]:
    """Return a header as JSON values."""
    value: dict[str, Any] = {
        "rota_journal": VERSION,
        "policy": header.policy,
        "placement": header.placement,
        "tenancy": header.tenancy,
        "profiles": header.profiles,
        "about": header.about,
        "cluster": encode_cluster(header.cluster),
    }
    usual: dict[str, Any] = {"seed": 0, "restart_s": 0.0, "profiles_sha256": None, "estimate": None, "speed": {}}
    value |= {name: getattr(header, name) for name, rule in usual.items() if getattr(header, name) != rule}
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
    """Appends steps to a file. Use as a context manager."""

    def __init__(self, path: Path, header: JournalHeader) -> None:
        self._file: IO[str] = path.open("w", encoding="utf-8", newline="\n")
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

    def __exit__(self, *exc: object) -> None:
        self._file.close()


def _dump(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False) + "\n"


class JournalReader:
    """Reads a journal step by step; refuses one with a gap."""

    def __init__(self, path: Path) -> None:
        self._path = path
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
            return JournalHeader(
                cluster=decode_cluster(value["cluster"]),
                policy=value["policy"],
                placement=value["placement"],
                tenancy=value["tenancy"],
                profiles=value["profiles"],
                estimate=value.get("estimate"),
                about=value["about"],
                seed=value.get("seed", 0),
                restart_s=value.get("restart_s", 0.0),
                profiles_sha256=value.get("profiles_sha256"),
                speed=value.get("speed", {}),
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
