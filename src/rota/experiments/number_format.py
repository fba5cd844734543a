"""Numbers of a summary as people read them: one unit for a column, as many digits as their interval supports."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rota.experiments.statistics import Interval
from rota.report.look import unit_for
from rota.report.named_metrics import MetricUnit, NamedMetric

MOST_DIGITS = 4
"""Decimals, at most."""


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
    return min(max(wanted, 0), MOST_DIGITS)


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
        if value.low > 0 and scale > 0:  # a bound above 0 is not shown as 0
            places = max(places, min(-math.floor(math.log10(value.low * scale)), MOST_DIGITS))
        return f"{middle:,.{places}f} [{value.low * scale:,.{places}f}, {value.high * scale:,.{places}f}]"
    return f"{middle:,.{places}f} {plus_minus} {half * abs(scale):,.{places}f}"


def log_ticks(low: float, high: float) -> dict[str, object]:
    """The marks of a logarithmic axis as whole numbers of people: 0.2, 0.5, 1, 2, 5, 10."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    digits_shown = (1, 2, 5) if len(decades) < 5 else (1,)
    values = [float(f"{digit}e{decade}") for decade in decades for digit in digits_shown]
    return {"type": "log", "tickvals": values, "ticktext": [f"{value:,.10g}" for value in values]}


def load_text(load: float | None) -> str:
    """A load as tables show it."""
    return "as is" if load is None else f"{load:g}"
