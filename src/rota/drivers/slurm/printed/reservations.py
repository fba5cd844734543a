"""Slurm's reservations: which nodes they keep, when, and which users and accounts may use them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from rota.drivers.slurm.printed.fields import BadField, hosts, number, text, words
from rota.drivers.slurm.printed.records import SlurmReading, SlurmUnreadable

Json = dict[str, Any]
_WORD = re.compile(r"(\w+)=(\S*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmReservation:
    """Nodes that only jobs may use that name the reservation."""

    name: str
    nodes: tuple[str, ...]
    start_s: float
    end_s: float
    is_partial: bool = False
    """Whether it keeps some cores of its nodes only."""
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()


def read_reservations(output: str) -> SlurmReading[SlurmReservation]:
    """Read `scontrol show reservation --oneliner` with times in seconds."""
    reading: SlurmReading[SlurmReservation] = SlurmReading()
    for line in output.splitlines():
        if not line.startswith("ReservationName="):
            continue
        values = dict(reversed(_WORD.findall(line)))
        _add(
            reading,
            {
                "name": values.get("ReservationName"),
                "node_list": values.get("Nodes"),
                "start_time": values.get("StartTime"),
                "end_time": values.get("EndTime"),
                "core_specializations": "CoreIDs" in values,
                "users": values.get("Users"),
                "accounts": values.get("Accounts"),
            },
        )
    return reading


def read_rest_reservations(output: bytes) -> SlurmReading[SlurmReservation]:
    """Read slurmrestd's list of reservations."""
    try:
        records = json.loads(output)["reservations"]
        assert isinstance(records, list)
    except (ValueError, KeyError, TypeError, RecursionError, AssertionError) as error:
        raise SlurmUnreadable("slurmrestd's answer has no list of reservations") from error
    reading: SlurmReading[SlurmReservation] = SlurmReading()
    for record in records:
        _add(reading, record if isinstance(record, dict) else {})
    return reading


def _add(reading: SlurmReading[SlurmReservation], value: Json) -> None:
    try:
        start_s, end_s = number(value.get("start_time")), number(value.get("end_time"))
        name = text(value.get("name"))
        if not name or start_s is None or end_s is None:
            raise BadField("it has no name, or no times")
        reading.found.append(
            SlurmReservation(
                name=name,
                nodes=hosts(text(value.get("node_list"))),
                start_s=start_s,
                end_s=end_s,
                is_partial=bool(value.get("core_specializations") or number(value.get("core_spec_cnt"))),
                users=_listed(value.get("users")),
                accounts=_listed(value.get("accounts")),
            )
        )
    except BadField as error:
        reading.faults.append(f"reservation {str(value.get('name'))[:60]}: {error}")


def _listed(value: Any) -> tuple[str, ...]:
    """Names of a list, without those that are excluded (`-ann`)."""
    return tuple(name for name in words(text(value) if isinstance(value, str) else value) if not name.startswith("-"))
