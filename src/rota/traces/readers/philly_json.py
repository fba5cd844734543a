"""Microsoft's Philly trace as it was published: `cluster_job_log`, one JSON list of jobs with their attempts.

See github.com/msr-fiddle/philly-traces. A job may have no attempts, and an attempt may lack its start or
its end; a job without one whole attempt has nothing to replay and is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import cast

from rota.core.errors import RotaError
from rota.traces.assemble import Shape, gang, plain_job
from rota.traces.builder import Entry, TraceBuilder
from rota.traces.fields import BadLine, bad, moment_s
from rota.traces.source import TraceSource
from rota.traces.workload import Outcome, Workload

OUTCOMES = {"Pass": Outcome.SUCCEEDED, "Killed": Outcome.CANCELLED, "Failed": Outcome.FAILED}
_BETWEEN = re.compile(r"[\s,]*")


def detects(source: TraceSource) -> bool:
    """Whether the file is a JSON list whose first job has attempts."""
    head = source.head.lstrip(b"\xef\xbb\xbf \t\r\n")
    return head.startswith(b"[") and b'"attempts"' in head and b'"jobid"' in head


def read(source: TraceSource) -> Workload:
    """Read the list of jobs; time starts at the first submission."""
    intake = TraceBuilder(source)
    with source.text() as lines:
        text = lines.read()
    shapes: dict[int, Shape] = {}
    for record, start in _records(text, str(source.path)):
        try:
            entry = _entry(record, shapes)
        except RotaError as err:
            intake.reject(_line_at(text, start), err)
            continue
        if entry is None:
            intake.left_out += 1
        else:
            intake.entries.append(entry)
            intake.lines.append(start)
    if len({entry[1].id for entry in intake.entries}) < len(intake.entries):
        intake.lines = [_line_at(text, start) for start in intake.lines]
    return intake.workload("philly-json", from_zero=True)


def _records(text: str, where: str) -> Iterator[tuple[object, int]]:
    """Each value of the list with its place in the text, so that an error can name the line."""
    decode = json.JSONDecoder().raw_decode
    place = len(text) - len(text.lstrip())
    if text[place : place + 1] != "[":
        raise RotaError(f"{where}:1: expected a JSON list of jobs, beginning with '['")
    place = _gap_end(text, place + 1)
    while text[place : place + 1] != "]":
        try:
            record, end = decode(text, place)
        except json.JSONDecodeError as err:
            raise RotaError(f"{where}:{err.lineno}: it is not JSON: {err.msg}") from None
        yield record, place
        place = _gap_end(text, end)


def _gap_end(text: str, place: int) -> int:
    found = _BETWEEN.match(text, place)
    return found.end() if found else place


def _line_at(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _entry(record: object, shapes: dict[int, Shape]) -> Entry | None:
    if not isinstance(record, dict):
        raise BadLine("expected a job as a JSON object")
    jobid = _text(record, "jobid")
    status = _text(record, "status")
    if status not in OUTCOMES:
        raise bad("status", status, f"one of {', '.join(OUTCOMES)}")
    submit_s = moment_s("submitted_time", _text(record, "submitted_time"))
    work, gpus = _runs(record.get("attempts"))
    if not gpus:
        return None
    shape = shapes.get(gpus) or shapes.setdefault(gpus, gang(gpus))
    job = plain_job(jobid, shape, work, tenant=_text(record, "vc"), user=str(record.get("user") or ""))
    return submit_s, job, OUTCOMES[status], 1.0


def _text(record: dict[str, object], key: str) -> str:
    value = record.get(key)
    if not isinstance(value, str) or not value:
        raise bad(key, value, "a text")
    return value


def _runs(attempts: object) -> tuple[float, int]:
    """Seconds of all whole attempts together, and the devices of the last of them."""
    if not isinstance(attempts, list):
        raise bad("attempts", attempts, "a list")
    work, gpus = 0.0, 0
    for attempt in attempts:
        if not isinstance(attempt, dict):
            raise bad("attempts", attempt, "an object")
        held = _devices(attempt.get("detail"))
        start, end = attempt.get("start_time"), attempt.get("end_time")
        if not held or _missing(start) or _missing(end):
            continue
        ran_s = moment_s("end_time", cast(str, end)) - moment_s("start_time", cast(str, start))
        if ran_s < 0:
            raise bad("end_time", end, f"a time after start_time {start}")
        work += ran_s
        gpus = held
    return work, gpus


def _missing(moment: object) -> bool:
    return not isinstance(moment, str) or moment in ("", "None")


def _devices(detail: object) -> int:
    """Devices of an attempt over all its machines."""
    if detail is None:
        return 0
    try:
        return sum(len(machine["gpus"]) for machine in cast("list[dict[str, list[str]]]", detail))
    except (TypeError, KeyError):
        raise bad("detail", detail, "a list of machines with ip and gpus") from None
