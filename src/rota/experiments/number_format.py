"""Numbers of a summary as people read them: one unit for a column, as many digits as their interval supports."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rota.experiments.statistics import Interval
from rota.report.look import unit_for
from rota.report.named_metrics import MetricUnit, NamedMetric


def scale_of(metric: NamedMetric, values: Sequence[Interval]) -> tuple[float, str]:
    """The factor and the name of the unit in which a metric's values are shown."""
    match metric.unit:
        case MetricUnit.SECONDS:
            unit = unit_for(max((abs(value.value) for value in values), default=0.0))
            return 1 / unit.seconds, unit.name
        case MetricUnit.FRACTION:
            return 100.0, "%"
        case MetricUnit.KWH | MetricUnit.DOLLARS:
            return 1.0, metric.unit.value
        case MetricUnit.RATIO | MetricUnit.COUNT:
            return 1.0, ""


def digits(value: float, half_width: float | None) -> int:
    """Decimals: two digits of the interval, at least one of the value, or three of it without an interval."""
    if half_width == 0 and value == round(value):
        return 0
    size = half_width if half_width else abs(value)
    if not size or not math.isfinite(size):
        return 2
    wanted = (1 if half_width else 2) - math.floor(math.log10(size))
    if value:
        wanted = max(wanted, -math.floor(math.log10(abs(value))))
    return min(max(wanted, 0), 4)


def shown(value: Interval, scale: float, *, plus_minus: str = "±") -> str:
    """A value with half of its interval: `12.3 ± 0.4`; with both bounds where they are uneven."""
    if not math.isfinite(value.value):
        return "-"
    middle, half = value.value * scale, value.half_width
    if half is None or value.low is None or value.high is None:
        return f"{middle:,.{digits(middle, None)}f}"
    places = digits(middle, half * abs(scale))
    below, above = (value.value - value.low) * scale, (value.high - value.value) * scale
    if abs(above - below) > 0.25 * max(above + below, 1e-12):
        return f"{middle:,.{places}f} [{value.low * scale:,.{places}f}, {value.high * scale:,.{places}f}]"
    return f"{middle:,.{places}f} {plus_minus} {half * abs(scale):,.{places}f}"


def load_text(load: float | None) -> str:
    """A load as tables show it."""
    return "as is" if load is None else f"{load:g}"
