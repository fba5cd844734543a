"""What `rota top` says of a cluster."""

from __future__ import annotations

from typing import Any

from rota.cli.jobs.top import WIDTH, summary


def overview(**fields: Any) -> dict[str, Any]:
    stretches = 2 * WIDTH
    shown: dict[str, Any] = {
        "policy": "priority",
        "devices": [
            {"type": "a100", "total": 8, "busy": 6.5, "idle": 0.5, "bad": 1, "scattered": 0},
            {"type": "v100", "total": 2, "busy": 0.0, "idle": 2.0, "bad": 0, "scattered": 2},
        ],
        "running": 7,
        "waiting": 1200,
        "tenants": [],
        "day": {
            "edges_s": [900.0 * index for index in range(stretches + 1)],
            "in_use": [0.0] * WIDTH + [10.0] * WIDTH,
            "waiting": [0.0] * (stretches - 2) + [0.0, 4.0],
            "wait_s": [None] * (stretches - 2) + [60.0, 120.0],
        },
    }
    return shown | fields


def test_numbers_and_the_day_as_lines() -> None:
    lines = summary(overview(), encoding="utf-8")

    assert lines == [
        "policy priority; curves over the last 1d",
        "in use     65.0%  " + " " * (WIDTH // 2) + "█" * (WIDTH // 2),
        "waiting    1,200  " + " " * (WIDTH - 1) + "█",
        "running        7  wait before start 1m 30s on average",
        "a100: 6.5 busy, 0.5 idle (0 in fragments), 1 bad, of 8",
        "v100: 0 busy, 2 idle (2 in fragments), 0 bad, of 2",
    ]


def test_machine_without_devices_that_has_just_started() -> None:
    day = {"edges_s": [0.0, 600.0], "in_use": [0.0], "waiting": [0.0], "wait_s": [None]}

    lines = summary(overview(devices=[], running=0, waiting=0, day=day), encoding="ascii")

    assert lines[1:] == ["in use         -", "waiting        0", "running        0  wait before start - on average"]
