"""When campaigns begin within a span: at random, by the hour of day, in step, or before deadlines."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate
from random import Random

from rota.traces.generators.planned import Campaign, Place

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S

DAILY_SWING = 0.5
"""Share by which the busiest hour is above the mean; Philly's hours lie between 0.64 and 2.1 of it."""

WEEKDAY, WEEKEND = 1.16, 0.60
"""Submissions per day against the mean, as counted in the public Philly trace."""


def poisson(rng: Random, count: int, span_s: float) -> list[float]:
    """So many arrivals of a Poisson process: given their number, they are uniform."""
    return sorted(rng.random() * span_s for _ in range(count))


def diurnal(rng: Random, count: int, span_s: float) -> list[float]:
    """Arrivals that follow the hour of day and spare the weekend; time 0 is Monday at midnight."""
    hours = max(1, math.ceil(span_s / HOUR_S))
    width_s = span_s / hours
    cumulative = list(accumulate(_rate((hour + 0.5) * width_s) for hour in range(hours)))
    times: list[float] = []
    for _ in range(count):
        target = rng.random() * cumulative[-1]
        hour = bisect_left(cumulative, target)
        before = cumulative[hour - 1] if hour else 0.0
        times.append((hour + (target - before) / (cumulative[hour] - before)) * width_s)
    return sorted(times)


def _rate(time_s: float) -> float:
    """Relative rate of submissions, highest at three in the afternoon."""
    day, second = divmod(time_s, DAY_S)
    daily = 1 + DAILY_SWING * math.cos(2 * math.pi * (second - 15 * HOUR_S) / DAY_S)
    return daily * (WEEKEND if int(day) % 7 >= 5 else WEEKDAY)


def starting_at(times: Callable[[Random, int, float], list[float]]) -> Place:
    """Campaigns that begin at such times, in the order in which they were drawn."""

    def place(rng: Random, campaigns: list[Campaign], span_s: float) -> None:
        for begin_s, campaign in zip(times(rng, len(campaigns), span_s), campaigns, strict=True):
            for job in campaign:
                job.submit_s += begin_s

    return place


def in_step(rng: Random, campaigns: list[Campaign], span_s: float) -> None:
    """Each campaign's jobs at equal distances over the whole span, from a phase of their own."""
    for campaign in campaigns:
        period_s = span_s / len(campaign)
        phase_s = rng.random() * period_s
        for turn, job in enumerate(campaign):
            job.submit_s = phase_s + turn * period_s


PEAK_EVERY_S = 14 * DAY_S
RUSH_S = 1.5 * DAY_S
"""A deadline every two weeks; the number of submissions grows by e in each day and a half before it."""


def before_deadlines(rng: Random, campaigns: list[Campaign], span_s: float) -> None:
    """Jobs with a deadline crowd before the next peak, the others come at any time."""
    peaks = max(1, round(span_s / PEAK_EVERY_S))
    distance_s = span_s / peaks
    for campaign in campaigns:
        peak_s = distance_s * rng.randint(1, peaks)
        for job in campaign:
            if job.due_s is None:
                job.submit_s = rng.random() * span_s
            else:
                job.submit_s = max(0.0, peak_s - min(rng.expovariate(1 / RUSH_S), distance_s))
                job.due_s = peak_s
