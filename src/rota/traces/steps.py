"""The steps of `rota trace transform`: each is written `NAME=VALUE`, and one is applied after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rota.core.errors import RotaError, did_you_mean
from rota.core.model.job import WHOLE, DeviceType, TenantId
from rota.traces.transform import (
    filtered,
    merged_with,
    sampled,
    scaled_to_load,
    sliced_by_time,
    stretched,
    window_of_jobs,
)
from rota.traces.workload import Submission, Workload

Duration = Callable[[str], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """What steps need beside their value: how times are read, how traces are, the cluster's devices, and the seed."""

    seconds: Duration
    read: Callable[[Path], Workload]
    devices: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformStep:
    """A step by name: the form of its value, a line about it, and what it does."""

    value: str
    summary: str
    apply: Callable[[Workload, str, StepContext], Workload]


def _number(name: str, text: str, *, least: float = 0.0) -> float:
    try:
        found = float(text)
    except ValueError:
        raise RotaError(f"{name}={text}: {text!r} is not a number") from None
    if not least < found < math.inf:
        raise RotaError(f"{name}={text}: it must be a number above {least:g}")
    return found


def _range(name: str, text: str, read: Duration) -> tuple[float, float]:
    low, dots, high = text.partition("..")
    if not dots:
        raise RotaError(f"{name}={text}: write a range, such as {name}=1..8; either end may be left out")
    found = read(low) if low else -math.inf, read(high) if high else math.inf
    if found[0] > found[1]:
        raise RotaError(f"{name}={text}: {low} is more than {high}; write the smaller one first")
    return found


def _load(workload: Workload, text: str, context: StepContext) -> Workload:
    devices = context.devices or (workload.cluster.devices if workload.cluster is not None else None)
    if not devices:
        raise RotaError(f"load={text}: state the devices of the cluster with --gpus N")
    return scaled_to_load(workload, _number("load", text), devices)


def _stretch(workload: Workload, text: str, context: StepContext) -> Workload:
    return stretched(workload, _number("stretch", text))


def _time(workload: Workload, text: str, context: StepContext) -> Workload:
    low, high = _range("time", text, context.seconds)
    return sliced_by_time(workload, low, high)


def _jobs(workload: Workload, text: str, context: StepContext) -> Workload:
    low, high = _range("jobs", text, lambda part: _number("jobs", part, least=-1.0))
    first = 0 if low == -math.inf else int(low)
    last = len(workload.submissions) if high == math.inf else int(high)
    return window_of_jobs(workload, first, max(last - first, 0))


def _sample(workload: Workload, text: str, context: StepContext) -> Workload:
    fraction = _number("sample", text)
    if fraction > 1:
        raise RotaError(f"sample={text}: it is the fraction of jobs to keep, at most 1")
    return sampled(workload, fraction, context.seed)


def _keep_gpus(workload: Workload, text: str, context: StepContext) -> Workload:
    low, high = _range("gpus", text, lambda part: _number("gpus", part, least=-1.0))
    return filtered(workload, lambda each: low <= each.job.gpus <= high)


def _keep_duration(workload: Workload, text: str, context: StepContext) -> Workload:
    low, high = _range("duration", text, context.seconds)
    return filtered(workload, lambda each: low <= each.target <= high)


def _clip(workload: Workload, text: str, context: StepContext) -> Workload:
    """Shorten or lengthen jobs to bounds of their run time."""
    low, high = _range("clip", text, context.seconds)

    def clipped(each: Submission) -> Submission:
        job = each.job
        if job.work is None:
            return each
        return replace(each, job=replace(job, work=min(max(job.work, low), high)))

    return replace(workload, submissions=tuple(clipped(each) for each in workload.submissions))


def _pairs(name: str, text: str) -> list[tuple[str, str]]:
    pairs = [part.partition(":") for part in text.split(",")]
    if not all(colon and old and new for old, colon, new in pairs):
        raise RotaError(f"{name}={text}: write OLD:NEW, several with commas; * is any other")
    return [(old, new) for old, _, new in pairs]


def _tenants(workload: Workload, text: str, context: StepContext) -> Workload:
    """Rename tenants; `users` makes one of each user, and a number divides jobs among so many."""
    if text == "users":
        return _mapped(workload, lambda number, each: each.job.user or str(each.job.tenant))
    if text.isdigit() and int(text) >= 1:
        return _mapped(workload, lambda number, each: f"tenant-{number % int(text) + 1}")
    names = dict(_pairs("tenants", text))
    rest = names.pop("*", None)
    return _mapped(workload, lambda number, each: names.get(str(each.job.tenant), rest or str(each.job.tenant)))


def _mapped(workload: Workload, tenant: Callable[[int, Submission], str]) -> Workload:
    return replace(
        workload,
        submissions=tuple(
            replace(each, job=replace(each.job, tenant=TenantId(tenant(number, each))))
            for number, each in enumerate(workload.submissions)
        ),
    )


def _types(workload: Workload, text: str, context: StepContext) -> Workload:
    """Rename device types; `any` lets every job run on all types."""
    names = {} if text == "any" else dict(_pairs("types", text))

    def retyped(each: Submission) -> Submission:
        roles = tuple(
            replace(
                role,
                device_types=()
                if text == "any"
                else tuple(DeviceType(names.get(str(kind), names.get("*", str(kind)))) for kind in role.device_types),
            )
            for role in each.job.roles
        )
        return replace(each, job=replace(each.job, roles=roles))

    return replace(workload, submissions=tuple(retyped(each) for each in workload.submissions))


def _whole(workload: Workload, text: str, context: StepContext) -> Workload:
    """Round parts of a device up to a whole one."""
    if text != "true":
        raise RotaError(f"whole={text}: the only value is true")

    def rounded(each: Submission) -> Submission:
        roles = tuple(
            replace(role, device_milli=WHOLE) if 0 < role.device_milli < WHOLE else role for role in each.job.roles
        )
        return replace(each, job=replace(each.job, roles=roles))

    return replace(workload, submissions=tuple(rounded(each) for each in workload.submissions))


def _merge(workload: Workload, text: str, context: StepContext) -> Workload:
    return merged_with(workload, [context.read(Path(name)) for name in text.split(",")])


STEPS: Mapping[str, TransformStep] = {
    "load": TransformStep(value="F", summary="stretch times to a load of --gpus N devices", apply=_load),
    "stretch": TransformStep(value="F", summary="multiply the times between submissions", apply=_stretch),
    "time": TransformStep(value="A..B", summary="jobs submitted in a time, from the first on", apply=_time),
    "jobs": TransformStep(value="A..B", summary="jobs by number, from 0 on", apply=_jobs),
    "sample": TransformStep(value="F", summary="each job with this probability (--seed N)", apply=_sample),
    "gpus": TransformStep(value="A..B", summary="jobs with so many GPUs", apply=_keep_gpus),
    "duration": TransformStep(value="A..B", summary="jobs that run so long", apply=_keep_duration),
    "clip": TransformStep(value="A..B", summary="bound run times", apply=_clip),
    "tenants": TransformStep(value="OLD:NEW,...|users|N", summary="rename tenants", apply=_tenants),
    "types": TransformStep(value="OLD:NEW,...|any", summary="rename device types", apply=_types),
    "whole": TransformStep(value="true", summary="parts of a GPU become whole ones", apply=_whole),
    "merge": TransformStep(value="FILE,...", summary="add other traces, each from time 0", apply=_merge),
}
"""Every step by its name."""


def transform(workload: Workload, steps: Sequence[str], context: StepContext) -> Workload:
    """Apply steps one after the other."""
    for text in steps:
        name, equals, value = text.partition("=")
        if name not in STEPS:
            raise RotaError(f"unknown step {name!r}; {did_you_mean(name, STEPS)}")
        if not equals or not value:
            raise RotaError(f"step {name}: write it as {name}={STEPS[name].value}")
        workload = STEPS[name].apply(workload, value, context)
    return workload
