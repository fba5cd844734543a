"""Notes on a scenario before it runs: what it assumes, and which options have no effect."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations_with_replacement

from rota.core.errors import did_you_mean
from rota.core.model.job import OPPORTUNISTIC, WHOLE, Job
from rota.drivers.simulator.load import LoadedScenario
from rota.mechanisms.rounds.rule import above_zero
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.contention_constants import KINDS
from rota.perf.speed.shared_servers import kind_of
from rota.policies import find_policy
from rota.policies.published.colocation.antman import AntManParams
from rota.policies.published.colocation.horus import HorusParams
from rota.policies.published.colocation.kubeshare import KubeShareParams
from rota.policies.published.gavel.entries import names_of
from rota.policies.published.learned.harmony import HarmonyParams, learned

_FAMILY = "gavel/"
_LABELS = {"priority_weight": "it counts as 1", "slo": "it is no deadline"}


def scenario_notes(loaded: LoadedScenario) -> tuple[str, ...]:
    """All notes, each a line for stderr."""
    return (
        *_unknown_types(loaded),
        *_unmeasured_pairs(loaded),
        *_unread_labels(loaded),
        *_unknown_names(loaded),
        *_unknown_kinds(loaded),
        *_unshared(loaded),
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
    consequences = dict(_LABELS) if any(spec.startswith(_FAMILY) for spec in loaded.scenario.policies) else {}
    wrong: dict[str, list[str]] = {}
    for submission in loaded.workload.submissions:
        for name, text in submission.job.labels:
            if name in consequences and above_zero(text) is None:
                wrong.setdefault(name, []).append(f"job {submission.job.id}: label {name} is {text!r}")
    for name, found in wrong.items():
        more = f" ({len(found) - 1:,} more like it)" if len(found) > 1 else ""
        yield f"{found[0]}, not a number above 0; {consequences[name]}{more}"


def _unknown_names(loaded: LoadedScenario) -> Iterator[str]:
    types = {str(kind) for kind in loaded.setting.cluster.devices_by_type}
    for spec in loaded.scenario.policies:
        declared, options = find_policy(spec)
        if not declared.name.startswith(_FAMILY):
            continue
        params = declared.read(options)
        for field in ("prices", "weights", "entities"):
            names = names_of(getattr(params, field, ()))
            known = types if field == "prices" else _entities(loaded) if names else set()
            for name in names:
                if name not in known:
                    what = "no type of the cluster" if field == "prices" else "no job's entity"
                    yield f"{spec}: {field} names {name!r}, which is {what}; {did_you_mean(name, known)}"


def _unknown_kinds(loaded: LoadedScenario) -> Iterator[str]:
    kinds = [kind_of(submission.job) for submission in loaded.workload.submissions]
    if loaded.scenario.speed.contention and (lacking := _lacking(kinds, KINDS)):
        yield f"--contention: {lacking}; they neither cause nor suffer contention"
    for spec in loaded.scenario.policies:
        declared, options = find_policy(spec)
        params = declared.read(options)
        if isinstance(params, HarmonyParams) and (lacking := _lacking(kinds, learned(params.weights).network.kinds)):
            yield f"{spec}: {lacking}; its weights treat them as one unknown kind"


_HOW_BUSY = "Measured pairs (--profiles), the label utilization or unknown=FRACTION state how busy they are"


def _unshared(loaded: LoadedScenario) -> Iterator[str]:
    jobs = [submission.job for submission in loaded.workload.submissions]
    for spec in loaded.scenario.policies:
        declared, options = find_policy(spec)
        params = declared.read(options)
        if isinstance(params, AntManParams) and (lack := _lacks_packing(loaded, jobs, params)):
            yield f"{spec}: {lack}"
        if isinstance(params, HorusParams) and (lack := _lacks_idle(loaded, jobs, params)):
            yield f"{spec}: {lack}"
        if isinstance(params, KubeShareParams) and not any(role.is_fraction for job in jobs for role in job.roles):
            yield f"{spec}: no job asks for a fraction of a device (gpus below 1); none is shared"


def _lacks_packing(loaded: LoadedScenario, jobs: Sequence[Job], params: AntManParams) -> str:
    """Why no job can be packed with one that has whole devices under `antman`; empty if some can."""
    if params.patience_s == math.inf and not any(job.priority == OPPORTUNISTIC for job in jobs):
        return (
            "no job is opportunistic (priority -1); none is packed with a job that has whole devices. "
            "With patience_s=SECONDS, jobs that have waited for that time are"
        )
    kinds, speed = loaded.setting.cluster.devices_by_type, loaded.setting.speed
    guaranteed = [job for job in jobs if job.priority > OPPORTUNISTIC and not job.roles[0].is_fraction]
    if any(speed.use(job, kind, params.unknown) < params.busy for job in guaranteed for kind in kinds):
        return ""
    return (
        f"no guaranteed job is known to keep its devices busy for less than {params.busy:g} of the time; "
        f"none is packed with one. {_HOW_BUSY}"
    )


def _lacks_idle(loaded: LoadedScenario, jobs: Sequence[Job], params: HorusParams) -> str:
    """Why no two jobs are packed under `horus`; empty if some can, or if their models predict it."""
    kinds, speed = loaded.setting.cluster.devices_by_type, loaded.setting.speed
    busy = sorted(min((speed.use(job, kind, params.unknown) for kind in kinds), default=1.0) for job in jobs)
    if speed.knows_pairs or sum(busy[:2]) <= params.limit:
        return ""
    return (
        f"no two jobs are known to keep a device busy for at most {params.limit:g} together; "
        f"none is shared. {_HOW_BUSY}"
    )


def _undisturbed(loaded: LoadedScenario) -> Iterator[str]:
    if loaded.workload.contention_removed:
        yield (
            f"--contention: the slowdown by neighbours of the jobs of {loaded.workload.source} is taken out of their "
            "run times first, so that it does not count twice"
        )


def _lacking(kinds: Sequence[str | None], known: Collection[str]) -> str:
    """Which kinds of jobs are unknown, and how many jobs; empty if all are known."""
    lacking = [kind for kind in kinds if kind not in known]
    if not lacking:
        return ""
    named = sorted({kind for kind in lacking if kind is not None})
    shown = [*map(repr, named[:3]), *([f"{len(named) - 3:,} more"] if len(named) > 3 else [])]
    if None in lacking:
        shown.append("jobs that name no model")
    return (
        f"{len(lacking):,} of {len(kinds):,} jobs are of no known kind ({', '.join(shown)}; known: {', '.join(known)})"
    )


def _entities(loaded: LoadedScenario) -> set[str]:
    jobs = [submission.job for submission in loaded.workload.submissions]
    return {dict(job.labels).get("entity", str(job.tenant)) for job in jobs}
