"""The figure of the soak: memory and descriptors of the manager over time, as SVG."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH, HEIGHT, LEFT, TOP = 760, 170, 60, 26
STYLE = (
    "text{font:12px sans-serif;fill:#444}.line{fill:none;stroke:#1f6feb;stroke-width:1.5}"
    ".grid{stroke:#ddd;stroke-width:1}.kill{stroke:#d1242f;stroke-width:1;stroke-opacity:.35}"
)
Point = tuple[float, float, float]


def draw(points: Sequence[Point], kills_s: Sequence[float]) -> str:
    """Return the figure; a red line stands for each kill of the manager."""
    last_s = max([60.0, *(at_s for at_s, _, _ in points)])
    panels = [
        _panel(0, "memory of the manager in MiB", [(at_s, mb) for at_s, mb, _ in points], kills_s, last_s),
        _panel(1, "open descriptors of the manager", [(at_s, fds) for at_s, _, fds in points], kills_s, last_s),
    ]
    height = 2 * (HEIGHT + TOP) + 34
    middle, box = LEFT + (WIDTH - LEFT) // 2, f"0 0 {WIDTH + 20} {height}"
    label = "minutes; red: the manager is killed"
    axis = f'<text x="{middle}" y="{height - 6}" text-anchor="middle">{label}</text>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" role="img"><style>{STYLE}</style>'
    return "\n".join([head, '<rect width="100%" height="100%" fill="#fff"/>', *panels, axis, "</svg>"]) + "\n"


def _panel(
    number: int, title: str, values: Sequence[tuple[float, float]], kills_s: Sequence[float], last_s: float
) -> str:
    top = number * (HEIGHT + TOP) + TOP
    most = max([1.0, *(value for _, value in values)]) * 1.15

    def x(at_s: float) -> float:
        return LEFT + at_s / last_s * (WIDTH - LEFT)

    def y(value: float) -> float:
        return top + HEIGHT - value / most * (HEIGHT - 20)

    parts = [f'<text x="{LEFT}" y="{top + 4}">{title}</text>']
    for step in range(5):
        value = most / 1.15 * step / 4
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.0f}</text>')
    minutes = last_s / 60
    step_min = next(each for each in (0.5, 1, 2, 5, 10, 20, 60, 1e9) if minutes / each <= 8)
    at_min = 0.0
    while at_min <= minutes:
        parts.append(f'<text x="{x(60 * at_min):.1f}" y="{top + HEIGHT + 14}" text-anchor="middle">{at_min:g}</text>')
        at_min += step_min
    parts += [
        f'<line class="kill" x1="{x(at):.1f}" x2="{x(at):.1f}" y1="{top + 12}" y2="{top + HEIGHT}"/>' for at in kills_s
    ]
    line = " ".join(f"{x(at_s):.1f},{y(value):.1f}" for at_s, value in values)
    return "\n".join([*parts, f'<polyline class="line" points="{line}"/>'])
