"""How long a job runs, as a distribution that is learned from ended jobs.

A job that declares an estimate (or a time limit) runs for a multiple of it; a job that declares nothing runs for a
multiple of a second. Logarithms of multiples are grouped in levels: all jobs, those of the user, of the user and
command, of the user and name (with and without its digits), of that size too; for a job of a new name, all jobs, those
of its size, the user's of its size. The centre of a group is shrunk towards that of the group around it, by as much as
the groups of that level differ less than the jobs in them do, so that one sample never outweighs a declaration. What
a job declares and what like jobs ran for are weighed against each other: where declarations scatter more than the run
times of like jobs, one that is longer than usual is less than fully believed. Around the centre lie the deviations seen
in the group and in all groups of its level. Each forward run draws centres once, since all jobs of a group share that
error, and a factor for all. A job that has already run for a while runs longer than that: distributions are
conditional. Jobs that still run count too, in the order of submission, with a length drawn beyond what they have done:
of the jobs that began lately only the short ones have ended. Jobs that an owner submits one after the other may be
alike beyond that: where the past shows it, their lengths are drawn together (`succession`).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import accumulate

from rota.core.model.job import Job, JobId
from rota.forecast.chance import normal_beyond, uniforms
from rota.forecast.job_groups import Base, base_of, base_of_key, by_name, by_size, scale_of, sequence_of
from rota.forecast.mixture import EstimateDoubt, Mixture
from rota.forecast.past import PastRun, ended
from rota.forecast.succession import Likeness, ScoredJob, Succession

MOST_SAMPLES = 512
"""How many of the latest samples of a group are used."""
MOST_DEVIATIONS = 512
"""How many deviations of a level are used."""
MOST_PARTS = 96
"""By how many deviations a group, and its level, are represented; of more, every n-th in order of size."""
LARGEST_LOG = 23.0
"""Run times that are off by more than this (a factor of ten billion) tell nothing."""
IMPUTED = -1
"""The run by whose numbers the lengths of running jobs are supposed, around the centres as they are expected."""
IMPUTATIONS = 3
"""How often the lengths of running jobs are drawn, each time from what was learned with those drawn before."""
PRIOR_SAMPLES = 2.0
"""How many samples a declaration, or what is assumed of all jobs, counts as."""
OWN = 6.0
"""Deviations of its level against which those of a group count."""
LEAST_HELD, MOST_HELD = 0.25, 8.0
"""Bounds on how many samples of a group the centre around it counts as."""
SMOOTH = 0.25
"""Width of the normal distribution around each deviation, relative to their spread."""
LEAST_SPREAD = 0.01
BELIEVED = 6.0
"""How many samples count for a declaration to be believed in full."""
REACH = 2.0
"""Declarations are weighed within so many standard deviations of the usual one; beyond, nothing is known of them."""
UNSURE = 1.3
"""By how much more the centre of a group is uncertain than its samples tell, since they are not independent."""


class KnownFrom(Enum):
    """What the run time of a job is known from."""

    DECLARED = "declared"
    HISTORY = "history"
    GUESS = "guess"


@dataclass(slots=True)
class _DurationGroup:
    """The logarithms of the multiples of like jobs, latest last."""

    level: str
    logs: list[float] = field(default_factory=list)
    declared: list[float] = field(default_factory=list)
    """The logarithms of what each declared."""
    mean: float = 0.0
    usual: float = 0.0
    """The mean of what was declared."""
    seen: int = 0

    def close(self) -> None:
        self.seen = len(self.logs)
        self.logs, self.declared = self.logs[-MOST_SAMPLES:], self.declared[-MOST_SAMPLES:]
        self.mean = math.fsum(self.logs) / len(self.logs)
        self.usual = math.fsum(self.declared) / len(self.declared)

    def residuals(self, doubt: float) -> list[float]:
        """Return how far each lies from the centre, given what it declared."""
        return [
            log - self.mean + doubt * (declared - self.usual)
            for log, declared in zip(self.logs, self.declared, strict=True)
        ]


@dataclass(slots=True)
class _LevelSpread:
    """How far the jobs of a group lie apart, over all groups of a level."""

    groups: list[_DurationGroup] = field(default_factory=list)
    doubt: float = 0.0
    """By which part of its distance from the usual declaration one is not believed."""
    reach: float = 0.0
    """The largest distance that is weighed."""
    squares: float = 0.0
    freedom: float = 0.0
    deviations: list[float] = field(default_factory=list)

    def close(self) -> None:
        """Learn from the groups: a line through the multiples of each over what was declared."""
        several = [group for group in self.groups if len(group.logs) > 1]
        self.freedom = float(sum(len(group.logs) - 1 for group in several))
        across = along = 0.0
        for group in several:
            apart = [each - group.usual for each in group.declared]
            along += math.fsum(each * each for each in apart)
            across += math.fsum(x * (y - group.mean) for x, y in zip(apart, group.logs, strict=True))
        if along > LEAST_SPREAD**2 * self.freedom:
            self.doubt = min(max(-across / along, 0.0), 1.0) * self.freedom / (self.freedom + BELIEVED)
            self.reach = REACH * math.sqrt(along / self.freedom)
        for group in several:
            count = len(group.logs)
            apart = group.residuals(self.doubt)
            self.deviations += [each * math.sqrt(count / (count - 1)) for each in apart]
            self.squares += math.fsum(each * each for each in apart)

    def belief(self, group: _DurationGroup, part: float) -> EstimateDoubt:
        """Return how the centre follows from what a job declares, for a part of it."""
        return EstimateDoubt(group.usual, self.doubt * part, self.reach)

    def within(self, prior: float, *, is_vague: bool) -> float:
        """Return the standard deviation in a group; a vague prior counts the less the more was seen."""
        weight = 1.0 / (1.0 + self.freedom) if is_vague else 1.0
        return max(math.sqrt((self.squares + weight * prior**2) / (self.freedom + weight)), LEAST_SPREAD)


class RunTimes:
    """The learned distributions of run times."""

    def __init__(self, past: Sequence[PastRun] = ()) -> None:
        known = ended(past)
        self.past_runs = len(known)
        self._successions: dict[Hashable, Succession] = {}
        self._fit(known)
        running = [each for each in past if each.work_s is None and each.done_s > 0]
        lengths: list[float] = []
        for _ in range(IMPUTATIONS if known and running else 0):
            lengths = [self._impute(each) for each in running]
            assumed = [replace(each, work_s=length_s) for each, length_s in zip(running, lengths, strict=True)]
            self._fit(sorted([*known, *assumed], key=lambda each: each.submit_s))
        if known:
            self._follow(past, dict(zip([each.job.id for each in running], lengths, strict=True)))

    def _impute(self, run: PastRun) -> float:
        """Return a length that a running job may come to have."""
        base = base_of(run.job)
        mixture, scale = self._mixture(run.job, run.command, base), scale_of(run.job, base) or 1.0
        middle = mixture.middle(math.log(scale), 0.0)
        least = mixture.score(math.log(run.done_s / scale) - middle)
        score = normal_beyond(least, uniforms(IMPUTED, run.job.id)[1])
        return max(scale * _exp(middle + mixture.deviation(score)), run.done_s)

    def _follow(self, past: Sequence[PastRun], supposed: Mapping[JobId, float]) -> None:
        """Learn how alike the jobs of an owner are that were submitted one after the other."""
        rows: dict[Hashable, list[ScoredJob]] = {}
        for each in sorted(past, key=lambda each: each.submit_s):
            base = base_of(each.job)
            if each.work_s is not None and each.work_s <= 0:
                continue
            scores = [self._score(each, length) for length in (each.work_s, each.done_s, supposed.get(each.job.id))]
            rows.setdefault(sequence_of(each.job, base), []).append(
                ScoredJob(
                    id=each.job.id,
                    score=scores[0],
                    exceeds=scores[1] if each.work_s is None else None,
                    supposed=scores[2],
                )
            )
        keys_by_base: dict[Base, list[Hashable]] = {}
        for key in rows:
            keys_by_base.setdefault(base_of_key(key), []).append(key)
        for keys in keys_by_base.values():
            likeness = Likeness([rows[key] for key in keys])
            if likeness.total > 0:
                self._successions |= {key: Succession(rows[key], likeness) for key in keys}

    def _score(self, run: PastRun, length_s: float | None) -> float | None:
        """Return the normal score of a length of a run; None of none."""
        if not length_s:
            return None
        base = base_of(run.job)
        mixture, scale = self._mixture(run.job, run.command, base), scale_of(run.job, base) or 1.0
        return mixture.score(math.log(max(length_s, 1e-3) / scale) - mixture.middle(math.log(scale), 0.0))

    def _fit(self, past: Sequence[PastRun]) -> None:
        """Learn from runs of known length."""
        self._groups: dict[Hashable, _DurationGroup] = {}
        self._levels: dict[tuple[Base, str], _LevelSpread] = {}
        self._held: dict[tuple[Base, str], float] = {}
        self._mixtures: dict[Hashable, Mixture] = {}
        self._run: int | None = None
        self._offs: dict[str, float] = {}
        for each in past:
            self._learn(each)
        for group in self._groups.values():
            group.close()
        for key, group in self._groups.items():
            self._levels.setdefault((base_of_key(key), group.level), _LevelSpread()).groups.append(group)
        for level in self._levels.values():
            level.close()

    def _learn(self, run: PastRun) -> None:
        assert run.work_s is not None
        seconds = math.log(max(run.work_s, 1e-3))
        for base in Base:
            scale = scale_of(run.job, base)
            if scale is not None:
                for key, level in dict.fromkeys((*by_name(run, base), *by_size(run, base))):
                    group = self._groups.setdefault(key, _DurationGroup(level))
                    group.logs.append(seconds - math.log(scale))
                    group.declared.append(math.log(scale))

    def known(self, job: Job, command: str = "") -> KnownFrom:
        """Return what the run time of a job is known from."""
        base = base_of(job)
        if base is not Base.SECOND:
            return KnownFrom.DECLARED
        chain = self._chain(PastRun(job=job, submit_s=0.0, command=command), base)
        return KnownFrom.HISTORY if chain and len(chain[0][1].logs) > PRIOR_SAMPLES else KnownFrom.GUESS

    def draw(self, run: int, job: Job, command: str = "", *, done_s: float = 0.0) -> float:
        """Return the work of a job in one run, known to exceed what it has done."""
        base = base_of(job)
        scale = scale_of(job, base) or 1.0
        mixture = self._mixture(job, command, base)
        middle = mixture.middle(math.log(scale), self._off(run, mixture))
        succession = self._successions.get(sequence_of(job, base))
        if succession is not None and (done_s <= 0 or succession.knows(job.id)):
            exceeds = None if done_s <= 0 else mixture.score(math.log(done_s / scale) - middle)
            return max(scale * _exp(middle + mixture.deviation(succession.draw(run, job.id, exceeds))), done_s)
        share, place = uniforms(run, job.id)
        if done_s <= 0:
            return scale * _exp(mixture.draw(middle, share, place))
        return max(scale * _exp(mixture.draw_beyond(middle, math.log(done_s / scale), share, place)), done_s)

    def _off(self, run: int, mixture: Mixture) -> float:
        """Return by how much a centre is off in a run; jobs are drawn run after run."""
        if run != self._run:
            self._run, self._offs = run, {}
        found = self._offs.get(mixture.key)
        if found is None:
            found = self._offs[mixture.key] = mixture.off(run)
        return found

    def _mixture(self, job: Job, command: str, base: Base) -> Mixture:
        key = (base, job.user or job.tenant, job.name, command, job.gpu_milli)
        found = self._mixtures.get(key)
        if found is None:
            run = PastRun(job=job, submit_s=0.0, command=command)
            found = self._mixtures[key] = self._mix(self._chain(run, base), base)
        return found

    def _chain(self, run: PastRun, base: Base) -> list[tuple[Hashable, _DurationGroup]]:
        """Return the groups of a job from all to those most like it; a group that adds nothing is left out."""
        named = by_name(run, base)
        is_named = any(key in self._groups for key, _ in named[2:])
        chain: list[tuple[Hashable, _DurationGroup]] = []
        for key, _ in named if is_named else by_size(run, base):
            group = self._groups.get(key)
            if group is not None and (not chain or group.seen < chain[-1][1].seen):
                chain.append((key, group))
        return chain

    def _mix(self, chain: Sequence[tuple[Hashable, _DurationGroup]], base: Base) -> Mixture:
        centre, unsure = base.mean, 0.6 * base.spread
        offsets, weights = [0.0], [1.0]
        width = within = base.spread
        beliefs: list[EstimateDoubt] = []
        around: _DurationGroup | None = None
        for _, group in chain:
            level = self._levels[base, group.level]
            is_first = around is None
            within = level.within(base.spread if is_first else base.within, is_vague=is_first)
            held = _held_by_prior(base, within) if around is None else self._held_by(base, group.level, around, within)
            count = len(group.logs)
            centre = (count * group.mean + held * centre) / (count + held)
            unsure = UNSURE * within / math.sqrt(count + held)
            offsets, weights = _deviations(group, level, within)
            beliefs = [replace(each, doubt=each.doubt * held / (count + held)) for each in beliefs]
            beliefs.append(level.belief(group, count / (count + held)))
            width = max(SMOOTH * within, LEAST_SPREAD)
            around = group
        key = repr(chain[-1][0]) if chain else base.name
        return Mixture(key, centre, unsure, offsets, list(accumulate(weights)), width, tuple(beliefs), within)

    def _held_by(self, base: Base, level: str, around: _DurationGroup, within: float) -> float:
        """Return how many samples of a group its surroundings count as: variance in groups over that between them."""
        known = self._held.get((base, level))
        if known is None:
            centre = around.mean
            groups = [group for key, group in self._groups.items() if group.level == level and base_of_key(key) is base]
            squares = math.fsum((group.mean - centre) ** 2 - within**2 / len(group.logs) for group in groups)
            between = squares / len(groups) if len(groups) > 1 else within**2 / PRIOR_SAMPLES
            held = within**2 / between if between > 0 else MOST_HELD
            least = PRIOR_SAMPLES if base is not Base.SECOND else LEAST_HELD
            known = self._held[base, level] = min(max(held, least), MOST_HELD)
        return known


def _held_by_prior(base: Base, within: float) -> float:
    """Return how many samples count as what is assumed of all jobs: of a declaration some, of a guess hardly any."""
    return PRIOR_SAMPLES if base is not Base.SECOND else min((within / base.spread) ** 2, PRIOR_SAMPLES)


def _deviations(group: _DurationGroup, level: _LevelSpread, within: float) -> tuple[list[float], list[float]]:
    """Return where jobs lie around the centre of their group, with weights: as in the group, and as in its level."""
    own = _thinned(group.residuals(level.doubt))
    others = _thinned(level.deviations[-MOST_DEVIATIONS:])
    offsets, weights = list(own), [len(group.logs) / len(own)] * len(own)
    if others:
        offsets += others
        weights += [OWN / len(others)] * len(others)
    else:
        offsets += [within * each for each in (-1.3, -0.5, 0.0, 0.5, 1.3)]
        weights += [OWN / 5.0] * 5
    return offsets, weights


def _thinned(deviations: list[float]) -> list[float]:
    """Return at most so many deviations that represent all."""
    if len(deviations) <= MOST_PARTS:
        return deviations
    ordered, every = sorted(deviations), len(deviations) / MOST_PARTS
    return [ordered[int((at + 0.5) * every)] for at in range(MOST_PARTS)]


def _exp(log: float) -> float:
    """The factor of a logarithm, within what run times can be."""
    return math.exp(min(max(log, -LARGEST_LOG), LARGEST_LOG))
