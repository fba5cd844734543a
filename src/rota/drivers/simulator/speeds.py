"""The speeds of a scenario: those of a file, of the catalogue or none; and which of them policies know."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rota.core.errors import RotaError, did_you_mean
from rota.core.model.cluster import Cluster
from rota.core.model.job import DeviceType
from rota.drivers.simulator.planned_sizes import device_counts
from rota.perf.profiles.catalogue import NAME, REFERENCE, catalogue
from rota.perf.profiles.partial_profiles import KnownSpeeds, SpeedEstimate, estimate, gaps_of
from rota.perf.profiles.profile_files import read_profiles
from rota.perf.profiles.speed_table import Profiles
from rota.scenario import Scenario
from rota.traces.readers.journal import JOURNAL
from rota.traces.workload import Workload

if TYPE_CHECKING:
    from rota.planner.parallel.cluster_speeds import PlannedSpeeds

NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioSpeeds:
    """The true speeds, the estimate that policies see instead if they do not know all, and notes for the user."""

    profiles: Profiles | None
    estimate: SpeedEstimate | None = None
    notes: tuple[str, ...] = ()
    is_file: bool = False
    """Whether the profiles are those of a file, unchanged."""


def scenario_speeds(
    scenario: Scenario, workload: Workload, cluster: Cluster, plans: PlannedSpeeds | None = None
) -> ScenarioSpeeds:
    """Read or choose the profiles for a workload, and estimate what policies do not know of them.

    With `plans`, those are the speeds of models that are planned; other models have those of the catalogue, if any.
    """
    spec = scenario.estimate
    if plans is None:
        profiles = _profiles(scenario.profiles, scenario.reference, workload, cluster)
    else:
        from rota.drivers.simulator.planned_jobs import plan_table

        profiles = plan_table(plans, workload, _of_others(scenario, workload, cluster))
    if profiles is None:
        if spec is not None:
            raise RotaError("there are no profiles of which part could be hidden; give them with --profiles FILE")
        return ScenarioSpeeds(profiles=None)
    notes = [f"speeds: {profiles.source}"] if profiles.source == NAME or plans is not None else []
    is_file = workload.counts_steps and profiles.source != NAME and plans is None
    if spec is None:
        return ScenarioSpeeds(profiles=profiles, notes=tuple(notes), is_file=is_file)
    missing = _gaps(profiles, workload, cluster)
    if missing.speeds or missing.pairs:
        filled = estimate(missing, spec.fill, spec.seed)
        notes.append(f"profiles {profiles.source}: {filled.sentence()}")
        profiles, is_file = filled.profiles, False
    if spec.known == 1:
        return ScenarioSpeeds(profiles=profiles, notes=tuple(notes), is_file=is_file)
    known = spec.estimate(profiles)
    notes.append(f"policies know: {known.sentence()}")
    return ScenarioSpeeds(profiles=profiles, estimate=known, notes=tuple(notes), is_file=is_file)


def _of_others(scenario: Scenario, workload: Workload, cluster: Cluster) -> Profiles | None:
    """The speeds of the models that are not planned."""
    from rota.planner.parallel.model_names import is_planned

    others = tuple(each for each in workload.submissions if not is_planned(each.job.model))
    return _profiles(None, scenario.reference, replace(workload, submissions=others), cluster) if others else None


def _profiles(name: str | None, reference: str | None, workload: Workload, cluster: Cluster) -> Profiles | None:
    if name == NONE or (name is None and not workload.counts_steps and not _catalogue_serves(workload, cluster)):
        if workload.counts_steps:
            raise RotaError(f"{workload.source}: its work is counted in steps; give their speed with --profiles FILE")
        return None
    reference = reference or _measured_on(workload)
    if name is None or name == NAME:
        return _from_catalogue(reference, workload, cluster, is_asked=name is not None)
    profiles = read_profiles(Path(name))
    if workload.counts_steps:
        if profiles.is_relative:
            raise RotaError(f"profiles {name}: its speeds are relative, but the work of {workload.source} is in steps")
        return profiles
    return profiles if profiles.is_relative else _relative(profiles, reference)


def _ran_on(workload: Workload) -> list[DeviceType]:
    """The types on which a journal's jobs ran; none of other traces."""
    return list(workload.cluster.devices_by_type) if workload.cluster and workload.format == JOURNAL else []


def _measured_on(workload: Workload) -> str | None:
    """The type in whose seconds a journal's work is, if its jobs can have run on no other and it is a known one."""
    types = _ran_on(workload)
    return str(types[0]) if len(types) == 1 and types[0] in catalogue().types else None


def _catalogue_serves(workload: Workload, cluster: Cluster) -> bool:
    """Whether some job names a model of the catalogue, all of the cluster's types are in it, and it is known on which
    of them work was measured."""
    book = catalogue()
    if len(_ran_on(workload)) > 1 or not all(kind in book.types for kind in cluster.devices_by_type):
        return False
    return any(submission.job.model in book.models for submission in workload.submissions)


def _from_catalogue(reference: str | None, workload: Workload, cluster: Cluster, *, is_asked: bool) -> Profiles:
    book = catalogue()
    jobs = [submission.job for submission in workload.submissions]
    unknown_types = [kind for kind in cluster.devices_by_type if kind not in book.types]
    unknown_models = sorted({job.model or "" for job in jobs} - book.models.keys()) if workload.counts_steps else []
    if unknown_types or unknown_models:
        if not is_asked:
            raise RotaError(f"{workload.source}: its work is counted in steps; give their speed with --profiles FILE")
        what, missing, known = (
            ("device type", unknown_types[0], set[str](book.types))
            if unknown_types
            else ("model", unknown_models[0], set(book.models))
        )
        raise RotaError(f"the catalogue has no {what} {missing!r}; {did_you_mean(missing, known)}")
    types = list(cluster.devices_by_type)
    counts = sorted({count for job in jobs if job.model in book.models for count in device_counts(job)})
    if workload.counts_steps:
        return book.profiles(types, counts)
    base = DeviceType(reference) if reference is not None else REFERENCE
    return _only(_relative(book.profiles({*types, base} & book.types.keys(), counts), reference), types)


def _relative(profiles: Profiles, reference: str | None) -> Profiles:
    """Speeds for work in seconds: as multiples of the reference's."""
    base = REFERENCE if reference is None else DeviceType(reference)
    relative = profiles.relative_to(base)
    if not relative.steps_per_s:
        known = {str(kind) for kind, _, _ in profiles.steps_per_s}
        raise RotaError(
            f"profiles {profiles.source}: they have no type {base!r}, in whose seconds work is counted; "
            f"name another with --reference TYPE ({did_you_mean(base, known)})"
        )
    return relative


def _only(profiles: Profiles, types: Collection[DeviceType]) -> Profiles:
    return replace(
        profiles,
        steps_per_s={key: rate for key, rate in profiles.steps_per_s.items() if key[0] in types},
        scattered={key: rate for key, rate in profiles.scattered.items() if key[0] in types},
    )


def _gaps(profiles: Profiles, workload: Workload, cluster: Cluster) -> KnownSpeeds:
    """Figures that the jobs could need and that the profiles do not have."""
    wanted = {
        (submission.job.model, count)
        for submission in workload.submissions
        if submission.job.model is not None and profiles.knows(submission.job.model)
        for count in device_counts(submission.job)
    }
    return gaps_of(profiles, wanted, list(cluster.devices_by_type))
