"""What a reader of results must know: assumptions, options or labels without effect, comparisons that are not fair."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement

from rota.core.errors import did_you_mean
from rota.core.model.job import DEFAULT_TENANT, WHOLE
from rota.core.state.history import History
from rota.drivers.simulator.load import LoadedScenario
from rota.mechanisms.hooks import SimulationInput
from rota.mechanisms.rounds.rule import above_zero
from rota.network.demand import demand_of
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.contention_constants import KINDS
from rota.perf.speed.shared_servers import unknown_kinds
from rota.policies import find_policy

NO_WAIT_S = 1e-6
"""Waiting below this is rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNote:
    """What a reader of the results must know: a code for programs, a sentence, and the policies that it is about."""

    code: str
    text: str
    policies: tuple[str, ...] = ()
    """Empty: all of them."""
    is_printed: bool = True
    """Whether `rota sim` also prints it; others are in its JSON and its report only."""
    is_caveat: bool = False
    """Whether the figures of those policies are comparable with others only with an asterisk."""

    def is_about(self, policy: str) -> bool:
        """Whether the note concerns a policy."""
        return not self.policies or policy in self.policies


def scenario_notes(loaded: LoadedScenario) -> tuple[RunNote, ...]:
    """Return all notes that can be made before a run, in the order in which they are found."""
    return (
        *(RunNote(code="speeds", text=text) for text in loaded.speeds.notes),
        *_plain("unknown-types", _unknown_types(loaded)),
        *_unmeasured_pairs(loaded),
        *_plain("labels", _unread_labels(loaded)),
        *_plain("contention", _unknown_kinds(loaded)),
        *_remarks(loaded),
        *_plain("contention", _undisturbed(loaded)),
        *_plain("network", _silent_jobs(loaded)),
        *_unused_abilities(loaded),
        *_placements(loaded),
        *_unused_seed(loaded),
    )


def _silent_jobs(loaded: LoadedScenario) -> Iterator[str]:
    """Yield how many jobs are modelled without traffic because it is not known what they send."""
    network = loaded.setting.network
    if network is None:
        return
    wide = [each.job for each in loaded.workload.submissions if each.job.gpu_milli > WHOLE or each.job.tasks > 1]
    silent = [job for job in wide if demand_of(job, network.models, network.usual) is None]
    if silent:
        yield (
            f"network: {len(silent):,} of {len(wide):,} jobs of several devices send nothing, as their models are not "
            f"known (job {silent[0].id} first); name them under models, or give a default, in {network.source}"
        )


def _plain(code: str, texts: Iterator[str]) -> Iterator[RunNote]:
    return (RunNote(code=code, text=text) for text in texts)


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


def _unmeasured_pairs(loaded: LoadedScenario) -> Iterator[RunNote]:
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
    yield RunNote(
        code="unmeasured-pairs",
        text=f"{', '.join(packing)}: {lack}; such jobs run packed as fast as alone. "
        "State their interference with --neighbours, e.g. --neighbours device=0.8",
        policies=tuple(packing),
        is_caveat=True,
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


def _remarks(loaded: LoadedScenario) -> Iterator[RunNote]:
    given = SimulationInput(
        jobs=[submission.job for submission in loaded.workload.submissions],
        device_types=loaded.setting.cluster.devices_by_type,
        speed=loaded.setting.speed,
    )
    for spec in loaded.scenario.policies:
        declared, options = find_policy(spec)
        for remark in declared.remarks_on(options, given):
            yield RunNote(code="remark", text=f"{spec}: {remark}", policies=(spec,))


def _undisturbed(loaded: LoadedScenario) -> Iterator[str]:
    if loaded.workload.contention_removed:
        yield (
            f"--contention: the slowdown by neighbours of the jobs of {loaded.workload.source} is taken out of their "
            "run times first, so that it does not count twice"
        )


def _unused_abilities(loaded: LoadedScenario) -> Iterator[RunNote]:
    """Abilities of policies that this workload or cluster gives no use for."""
    jobs = [submission.job for submission in loaded.workload.submissions]
    declared = {spec: find_policy(spec)[0] for spec in loaded.scenario.policies}
    elastic = tuple(spec for spec, policy in declared.items() if policy.resizes)
    if elastic and not any(job.elastic is not None for job in jobs):
        text = f"{', '.join(elastic)}: no job is elastic, so that there are no sizes to choose"
        yield RunNote(code="no-elastic-jobs", text=text, policies=elastic, is_printed=False)
    fair = tuple(spec for spec, policy in declared.items() if policy.divides_owners)
    owners = {(job.tenant, job.user) for job in jobs if job.user or job.tenant != DEFAULT_TENANT}
    if fair and len(owners) < 2:
        text = f"{', '.join(fair)}: all jobs are of one tenant and user, so that there is nothing to divide fairly"
        yield RunNote(code="one-owner", text=text, policies=fair, is_printed=False)
    if _types_are_equal(loaded):
        kinds = ", ".join(str(kind) for kind in loaded.setting.cluster.devices_by_type)
        text = f"device types {kinds}: all are equally fast for these jobs"
        yield RunNote(code="equal-types", text=text, is_printed=False)


def _types_are_equal(loaded: LoadedScenario) -> bool:
    """Whether the cluster has several types that differ in speed for no job."""
    kinds = [kind for kind, count in loaded.setting.cluster.devices_by_type.items() if count]
    speed = loaded.setting.speed
    if len(kinds) < 2 or speed.factor or len({speed.type_speed.get(kind, 1.0) for kind in kinds}) > 1:
        return False
    profiles = loaded.speeds.profiles
    models = {submission.job.model for submission in loaded.workload.submissions if submission.job.model is not None}
    if profiles is None:
        return True
    return all(len({profiles.rate(kind, model, 1) for kind in kinds}) == 1 for model in models)


def _placements(loaded: LoadedScenario) -> Iterator[RunNote]:
    """Policies that are compared under placements of their own."""
    if loaded.scenario.placement is not None or len(loaded.scenario.policies) < 2:
        return
    by_placement: dict[str, list[str]] = {}
    for spec in loaded.scenario.policies:
        declared, options = find_policy(spec)
        by_placement.setdefault(declared.placement_with(options), []).append(spec)
    if len(by_placement) > 1:
        each = "; ".join(f"{name}: {', '.join(specs)}" for name, specs in by_placement.items())
        yield RunNote(
            code="different-placements",
            text=f"policies are compared under different placements ({each}); set one for all with --placement",
            is_printed=False,
        )


def _unused_seed(loaded: LoadedScenario) -> Iterator[RunNote]:
    """A seed that was given although nothing in the run is random."""
    scenario = loaded.scenario
    drawn = bool(scenario.fault_rates or scenario.failures) or scenario.estimate is not None
    if scenario.seed and not drawn and not any(_may_draw(spec) for spec in scenario.policies):
        yield RunNote(
            code="seed-without-effect",
            text=f"--seed {scenario.seed} has no effect: the trace is given, and no policy, fault or estimate here is "
            "random. For several workloads use `rota experiment --seeds N` with a generated trace or --jobs",
        )


def _may_draw(spec: str) -> bool:
    declared, _ = find_policy(spec)
    return declared.draws or declared.user is not None


def outcome_notes(history: History) -> tuple[RunNote, ...]:
    """Notes that only a finished run gives."""
    waited = any(row.wait_s > NO_WAIT_S for row in history.jobs)
    if waited or not history.jobs:
        return ()
    return (RunNote(code="never-full", text="no job ever waited: the cluster is never full, and all orders are alike"),)
