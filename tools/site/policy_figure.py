"""The figure on a policy's page: which job holds which device when, on one standard workload, as SVG."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

from rota.core.model.job import JobId
from rota.core.state.history import History
from rota.drivers.simulator.load import load
from rota.drivers.simulator.study import simulate
from rota.files.scenario_file import scenario_from
from rota.report.series import Series
from rota.report.timeline import Segments, Timeline

WORKLOAD = Path(__file__).parents[2] / "docs" / "policies" / "standard.csv"
CLUSTER = "v100=8/4"
NODES, DEVICES = 2, 4
RESTART_COST_S = 60
SHOWN_S = 8 * 3600.0
"""The end of the axis, the same in all figures so that they can be compared."""

LEFT, RIGHT, TOP = 74, 12, 18
LANE, GAP, QUEUE = 17, 8, 34
WIDTH = 760
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B07A00", "#2A8CC4", "#6B6B6B"),
    *("#882255", "#7A7A1F", "#332288", "#117733", "#AA4499", "#44786B", "#A34A28"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRun:
    """A policy's run of the standard workload."""

    policy: str
    segments: Segments
    waiting: Series
    mean_jct_s: float
    makespan_s: float
    preemptions: int


def shown_run(policy: str) -> ShownRun:
    """Simulate the standard workload under a policy."""
    options = {"policy": (policy,), "cluster": CLUSTER, "trace": str(WORKLOAD), "restart_cost": RESTART_COST_S}
    loaded = load(scenario_from(options, WORKLOAD), None)
    timeline = Timeline(loaded.setting.cluster)
    history = simulate(loaded.workload, policy, loaded.setting, journal=timeline).history
    jct_s = [row.end_s - row.submit_s for row in history.jobs if row.end_s is not None]
    return ShownRun(
        policy=policy,
        segments=timeline.segments(),
        waiting=timeline.waiting(history),
        mean_jct_s=sum(jct_s) / len(jct_s),
        makespan_s=max(row.end_s for row in history.jobs if row.end_s is not None),
        preemptions=_preemptions(history),
    )


def _preemptions(history: History) -> int:
    return sum(row.preemptions for row in history.jobs)


def figure(run: ShownRun) -> str:
    """Draw the run: a lane per device, below them the number of waiting jobs."""
    bottom = TOP + NODES * DEVICES * LANE + GAP
    height = bottom + GAP + QUEUE + 26
    told = (
        f"{run.policy} on the standard workload: mean completion {run.mean_jct_s / 3600:.2f} h, "
        f"{run.preemptions} preemptions"
    )
    parts = [
        f'<svg class="policy-figure" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(told)}">',
        *_lanes(),
        *_bars(run.segments),
        *_queue(run.waiting, bottom + GAP),
        *_axis(bottom + GAP + QUEUE),
        "</svg>",
    ]
    return "".join(parts)


def _x(at_s: float) -> float:
    return LEFT + min(at_s, SHOWN_S) / SHOWN_S * (WIDTH - LEFT - RIGHT)


def _y(node: int, device: int) -> float:
    return TOP + (node * DEVICES + device) * LANE + node * GAP


def _lanes() -> list[str]:
    parts = []
    for node in range(NODES):
        top = _y(node, 0)
        parts.append(
            f'<rect x="{LEFT}" y="{top}" width="{WIDTH - LEFT - RIGHT}" height="{DEVICES * LANE}" '
            'fill="currentColor" opacity="0.06"/>'
            f'<text x="{LEFT - 8}" y="{top + DEVICES * LANE / 2 + 4}" text-anchor="end">node {node + 1}</text>'
        )
    return parts


def _bars(segments: Segments) -> list[str]:
    parts: list[str] = []
    filled: dict[tuple[int, int], list[tuple[float, float, float]]] = {}
    for at, job_id in enumerate(segments.job_ids):
        node, begin, end = int(segments.nodes[at]), float(segments.start_s[at]), float(segments.end_s[at])
        part = int(segments.milli[at]) / 1000
        if begin >= SHOWN_S or end <= begin:
            continue
        for device in range(DEVICES):
            if segments.masks[at] >> device & 1:
                lane = filled.setdefault((node, device), [])
                below = min(1 - part, sum(share for a, b, share in lane if a < end and begin < b))
                lane.append((begin, end, part))
                parts.append(_bar(job_id, node, device, begin, end, below, part))
    return parts


def _bar(job_id: JobId, node: int, device: int, begin: float, end: float, below: float, part: float) -> str:
    left, right = _x(begin), _x(end)
    top = _y(node, device) + 1 + below * (LANE - 2)
    tall = part * (LANE - 2)
    colour = COLOURS[(ord(job_id[0]) - ord("a")) % len(COLOURS)]
    text = ""
    if right - left > 9 and tall > 10:
        at = f'x="{(left + right) / 2:.1f}" y="{top + tall - 4:.1f}"'
        text = f'<text {at} text-anchor="middle" fill="#fff">{job_id}</text>'
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{max(right - left - 0.6, 0.6):.1f}" height="{tall:.1f}" rx="1.5" '
        f'fill="{colour}"><title>{job_id}: {begin / 3600:.2f} to {end / 3600:.2f} h</title></rect>{text}'
    )


def _queue(waiting: Series, top: float) -> list[str]:
    tallest = 8
    steps = [(float(at_s), float(value)) for at_s, value in zip(waiting.times_s, waiting.values, strict=True)]
    points = [f"{LEFT},{top + QUEUE}"]
    last = 0.0
    for at_s, value in steps:
        points.append(f"{_x(at_s):.1f},{top + QUEUE - last / tallest * QUEUE:.1f}")
        last = min(value, tallest)
        points.append(f"{_x(at_s):.1f},{top + QUEUE - last / tallest * QUEUE:.1f}")
    points.append(f"{_x(SHOWN_S):.1f},{top + QUEUE - last / tallest * QUEUE:.1f}")
    points.append(f"{_x(SHOWN_S):.1f},{top + QUEUE}")
    return [
        f'<polygon points="{" ".join(points)}" fill="currentColor" opacity="0.25"/>',
        f'<text x="{LEFT - 8}" y="{top + QUEUE - 6}" text-anchor="end">waiting</text>',
    ]


def _axis(top: float) -> list[str]:
    parts = [f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{top}" y2="{top}" stroke="currentColor" opacity="0.5"/>']
    for hour in range(int(SHOWN_S // 3600) + 1):
        parts.append(f'<text x="{_x(hour * 3600):.1f}" y="{top + 15}" text-anchor="middle">{hour} h</text>')
    return parts
