"""Notes for the user before a simulation runs: its assumptions, and options or labels without effect."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement

from rota.core.errors import did_you_mean
from rota.core.model.job import WHOLE
from rota.drivers.simulator.load import LoadedScenario
from rota.mechanisms.hooks import SimulationInput
from rota.mechanisms.rounds.rule import above_zero
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.contention_constants import KINDS
from rota.perf.speed.shared_servers import unknown_kinds
from rota.policies import find_policy


def scenario_notes(loaded: LoadedScenario) -> tuple[str, ...]:
    """Return all notes, in the order in which they are found."""
    return (
        *_unknown_types(loaded),
        *_unmeasured_pairs(loaded),
        *_unread_labels(loaded),
        *_unknown_kinds(loaded),
        *_remarks(loaded),
        *_undisturbed(loaded),
    )


def _unknown_types(loaded: LoadedScenario) -> Iterator[str]:
    profiles = loaded.speeds.profiles
    if profiles is None:
        return
    known = {str(kind) for kind, _, _ in profiles.steps_per_s}
    lacking = [str(kind) for kind, count in loaded.setting.cluster.devices_by_type.items() if count]
    lacking = [kind for kind in lacking if kind not in known]
    if lacking:
        named = ", ".join(f"{kind!r} ({did_you_mean(kind, known)})" for kind in lacking)
        yield f"profiles {profiles.source}: no speed on type {named}; no job of its models runs there"


def _unmeasured_pairs(loaded: LoadedScenario) -> Iterator[str]:
    speed = loaded.scenario.speed
    packing = [spec for spec in loaded.scenario.policies if find_policy(spec)[0].packs]
    if not packing or speed.device_neighbour != 1.0 or speed.interleaved:
        return
    profiles = loaded.speeds.profiles
    lack = "no pair of jobs on the same devices was measured"
    if profiles is not None and profiles.knows_pairs:
        missing, pairs = _pairs(loaded, profiles)
        if not missing:
            return
        lack = f"{missing:,} of {pairs:,} pairs of models on the same devices were not measured"
    yield (
        f"{', '.join(packing)}: {lack}; such jobs run packed as fast as alone. "
        "State their interference with --neighbours, e.g. --neighbours device=0.8"
    )


def _pairs(loaded: LoadedScenario, profiles: Profiles) -> tuple[int, int]:
    """The number of unmeasured pairs of the workload's models, by type and number of devices, and of all pairs."""
    jobs = [submission.job for submission in loaded.workload.submissions]
    sizes = {(max(job.gpu_milli // WHOLE, 1), job.model) for job in jobs if job.model is not None}
    found = [
        profiles.beside(kind, one, other, devices)
        for kind in loaded.setting.cluster.devices_by_type
        for devices in {size for size, _ in sizes}
        for one, other in combinations_with_replacement(
            sorted(model for size, model in sizes if size == devices and profiles.rate(kind, model, devices)), 2
        )
    ]
    return sum(rate is None for rate in found), len(found)


def _unread_labels(loaded: LoadedScenario) -> Iterator[str]:
    consequences = {
        name: what for spec in loaded.scenario.policies for name, what in find_policy(spec)[0].number_labels.items()
    }
    wrong: dict[str, list[str]] = {}
    for submission in loaded.workload.submissions:
        for name, text in submission.job.labels:
            if name in consequences and above_zero(text) is None:
                wrong.setdefault(name, []).append(f"job {submission.job.id}: label {name} is {text!r}")
    for name, found in wrong.items():
        more = f" ({len(found) - 1:,} more like it)" if len(found) > 1 else ""
        yield f"{found[0]}, not a number above 0; {consequences[name]}{more}"


def _unknown_kinds(loaded: LoadedScenario) -> Iterator[str]:
    jobs = [submission.job for submission in loaded.workload.submissions]
    if loaded.scenario.speed.contention and (lacking := unknown_kinds(jobs, KINDS)):
        yield f"--contention: {lacking}; they cause no interference and suffer none"


def _remarks(loaded: LoadedScenario) -> Iterator[str]:
    given = SimulationInput(
        jobs=[submission.job for submission in loaded.workload.submissions],
        device_types=loaded.setting.cluster.devices_by_type,
        speed=loaded.setting.speed,
    )
    for spec in loaded.scenario.policies:
        declared, options = find_policy(spec)
        for remark in declared.remarks_on(options, given):
            yield f"{spec}: {remark}"


def _undisturbed(loaded: LoadedScenario) -> Iterator[str]:
    if loaded.workload.contention_removed:
        yield (
            f"--contention: the slowdown by neighbours of the jobs of {loaded.workload.source} is taken out of their "
            "run times first, so that it does not count twice"
        )
