"""What to tell the user of a study before it runs: what it takes for granted, and what has no effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement

from rota.cli.study.request import Ready, SimRequest
from rota.core.errors import did_you_mean
from rota.core.model.job import WHOLE
from rota.mechanisms.hooks import SimulationInput
from rota.mechanisms.rounds.rule import above_zero
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.contention_constants import KINDS
from rota.perf.speed.interleaving import LABEL as STAGES
from rota.perf.speed.shared_servers import unknown_kinds
from rota.policies import find_policy


def study_notes(ready: Ready, request: SimRequest, policies: Sequence[str]) -> tuple[str, ...]:
    """Everything worth a line on stderr, in the order in which it is found."""
    return (
        *_unknown_types(ready),
        *_unmeasured_pairs(ready, request, policies),
        *_unread_labels(ready, policies),
        *_unknown_kinds(ready, request),
        *_remarks(ready, policies),
        *_undisturbed(ready),
    )


def _unknown_types(ready: Ready) -> Iterator[str]:
    profiles = ready.speeds.profiles
    if profiles is None:
        return
    known = {str(kind) for kind, _, _ in profiles.steps_per_s}
    lacking = [str(kind) for kind, count in ready.setting.cluster.devices_by_type.items() if count]
    lacking = [kind for kind in lacking if kind not in known]
    if lacking:
        named = ", ".join(f"{kind!r} ({did_you_mean(kind, known)})" for kind in lacking)
        yield f"profiles {profiles.source}: no speed on type {named}; no job of its models runs there"


def _unmeasured_pairs(ready: Ready, request: SimRequest, policies: Sequence[str]) -> Iterator[str]:
    told = {part.partition("=")[0].strip() for part in request.neighbours.split(",")}
    packing = [spec for spec in policies if find_policy(spec)[0].packs]
    if not packing or told & {"device", STAGES}:
        return
    profiles = ready.speeds.profiles
    lack = "no pair of jobs on the same devices was measured"
    if profiles is not None and profiles.knows_pairs:
        missing, pairs = _pairs(ready, profiles)
        if not missing:
            return
        lack = f"{missing:,} of {pairs:,} pairs of models on the same devices were not measured"
    yield (
        f"{', '.join(packing)}: {lack}; such jobs run beside each other as fast as alone. "
        "Say what each leaves of the other's speed with --neighbours, e.g. --neighbours device=0.8"
    )


def _pairs(ready: Ready, profiles: Profiles) -> tuple[int, int]:
    """Of the workload's models, by type and number of devices: pairs that were not measured, and all pairs."""
    jobs = [submission.job for submission in ready.workload.submissions]
    sizes = {(max(job.gpu_milli // WHOLE, 1), job.model) for job in jobs if job.model is not None}
    found = [
        profiles.beside(kind, one, other, devices)
        for kind in ready.setting.cluster.devices_by_type
        for devices in {size for size, _ in sizes}
        for one, other in combinations_with_replacement(
            sorted(model for size, model in sizes if size == devices and profiles.rate(kind, model, devices)), 2
        )
    ]
    return sum(rate is None for rate in found), len(found)


def _unread_labels(ready: Ready, policies: Sequence[str]) -> Iterator[str]:
    consequences = {name: what for spec in policies for name, what in find_policy(spec)[0].number_labels.items()}
    wrong: dict[str, list[str]] = {}
    for submission in ready.workload.submissions:
        for name, text in submission.job.labels:
            if name in consequences and above_zero(text) is None:
                wrong.setdefault(name, []).append(f"job {submission.job.id}: label {name} is {text!r}")
    for name, found in wrong.items():
        more = f" ({len(found) - 1:,} more like it)" if len(found) > 1 else ""
        yield f"{found[0]}, not a number above 0; {consequences[name]}{more}"


def _unknown_kinds(ready: Ready, request: SimRequest) -> Iterator[str]:
    jobs = [submission.job for submission in ready.workload.submissions]
    if request.contention and (lacking := unknown_kinds(jobs, KINDS)):
        yield f"--contention: {lacking}; they cause no interference and suffer none"


def _remarks(ready: Ready, policies: Sequence[str]) -> Iterator[str]:
    given = SimulationInput(
        jobs=[submission.job for submission in ready.workload.submissions],
        device_types=ready.setting.cluster.devices_by_type,
        speed=ready.setting.speed,
    )
    for spec in policies:
        declared, options = find_policy(spec)
        for remark in declared.remarks_on(options, given):
            yield f"{spec}: {remark}"


def _undisturbed(ready: Ready) -> Iterator[str]:
    if ready.is_undisturbed:
        yield (
            f"--contention: what neighbours had cost the jobs of {ready.workload.source} is taken out of their run "
            "times first, so that it does not count twice"
        )
