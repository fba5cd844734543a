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
conditional. Jobs that still run count too, with a length drawn beyond what they have done: of the jobs that began
lately only the short ones have ended.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import accumulate

from rota.core.model.job import Job
from rota.forecast.chance import uniforms
from rota.forecast.mixture import IMPUTED, EstimateDoubt, Mixture
from rota.forecast.past import PastRun, ended, kind_of

MOST_SAMPLES = 64
"""How many of the latest samples of a group are used."""
MOST_DEVIATIONS = 96
"""How many deviations of a level are used."""
LARGEST_LOG = 23.0
"""Run times that are off by more than this (a factor of ten billion) tell nothing."""
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


class _Base(Enum):
    """What a run time is a multiple of; the mean and spread of the logarithm of the multiple, and the usual spread."""

    ESTIMATE = (0.0, 0.4, 0.3)
    LIMIT = (math.log(0.4), 0.8, 0.5)
    SECOND = (math.log(1800.0), 1.8, 0.3)

    @property
    def mean(self) -> float:
        """The mean before anything is known."""
        return self.value[0]

    @property
    def spread(self) -> float:
        """The standard deviation before anything is known."""
        return self.value[1]

    @property
    def within(self) -> float:
        """The standard deviation among like jobs before anything is known."""
        return self.value[2]


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
        self._fit(known)
        running = [each for each in past if each.work_s is None and each.done_s > 0]
        if known and running:
            lengths = [self.draw(IMPUTED, each.job, each.command, done_s=each.done_s) for each in running]
            assumed = [replace(each, work_s=length_s) for each, length_s in zip(running, lengths, strict=True)]
            self._fit([*known, *assumed])

    def _fit(self, past: Sequence[PastRun]) -> None:
        """Learn from runs of known length."""
        self._groups: dict[Hashable, _DurationGroup] = {}
        self._levels: dict[tuple[_Base, str], _LevelSpread] = {}
        self._held: dict[tuple[_Base, str], float] = {}
        self._mixtures: dict[Hashable, Mixture] = {}
        self._run: int | None = None
        self._offs: dict[str, float] = {}
        for each in past:
            self._learn(each)
        for group in self._groups.values():
            group.close()
        for key, group in self._groups.items():
            self._levels.setdefault((_base_of(key), group.level), _LevelSpread()).groups.append(group)
        for level in self._levels.values():
            level.close()

    def _learn(self, run: PastRun) -> None:
        assert run.work_s is not None
        seconds = math.log(max(run.work_s, 1e-3))
        for base in _Base:
            scale = _scale(run.job, base)
            if scale is not None:
                for key, level in dict.fromkeys((*_by_name(run, base), *_by_size(run, base))):
                    group = self._groups.setdefault(key, _DurationGroup(level))
                    group.logs.append(seconds - math.log(scale))
                    group.declared.append(math.log(scale))

    def known(self, job: Job, command: str = "") -> KnownFrom:
        """Return what the run time of a job is known from."""
        base = _base(job)
        if base is not _Base.SECOND:
            return KnownFrom.DECLARED
        chain = self._chain(PastRun(job=job, submit_s=0.0, command=command), base)
        return KnownFrom.HISTORY if chain and len(chain[0][1].logs) > PRIOR_SAMPLES else KnownFrom.GUESS

    def draw(self, run: int, job: Job, command: str = "", *, done_s: float = 0.0) -> float:
        """Return the work of a job in one run, known to exceed what it has done."""
        base = _base(job)
        scale = _scale(job, base) or 1.0
        mixture = self._mixture(job, command, base)
        middle = mixture.middle(math.log(scale), self._off(run, mixture))
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

    def _mixture(self, job: Job, command: str, base: _Base) -> Mixture:
        key = (base, job.user or job.tenant, job.name, command, job.gpu_milli)
        found = self._mixtures.get(key)
        if found is None:
            run = PastRun(job=job, submit_s=0.0, command=command)
            found = self._mixtures[key] = self._mix(self._chain(run, base), base)
        return found

    def _chain(self, run: PastRun, base: _Base) -> list[tuple[Hashable, _DurationGroup]]:
        """Return the groups of a job from all to those most like it; a group that adds nothing is left out."""
        by_name = _by_name(run, base)
        is_named = any(key in self._groups for key, _ in by_name[2:])
        chain: list[tuple[Hashable, _DurationGroup]] = []
        for key, _ in by_name if is_named else _by_size(run, base):
            group = self._groups.get(key)
            if group is not None and (not chain or group.seen < chain[-1][1].seen):
                chain.append((key, group))
        return chain

    def _mix(self, chain: Sequence[tuple[Hashable, _DurationGroup]], base: _Base) -> Mixture:
        centre, unsure = base.mean, 0.6 * base.spread
        offsets, weights = [0.0], [1.0]
        width = base.spread
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
        return Mixture(key, centre, unsure, offsets, list(accumulate(weights)), width, tuple(beliefs))

    def _held_by(self, base: _Base, level: str, around: _DurationGroup, within: float) -> float:
        """Return how many samples of a group its surroundings count as: variance in groups over that between them."""
        known = self._held.get((base, level))
        if known is None:
            centre = around.mean
            groups = [group for key, group in self._groups.items() if group.level == level and _base_of(key) is base]
            squares = math.fsum((group.mean - centre) ** 2 - within**2 / len(group.logs) for group in groups)
            between = squares / len(groups) if len(groups) > 1 else within**2 / PRIOR_SAMPLES
            held = within**2 / between if between > 0 else MOST_HELD
            least = PRIOR_SAMPLES if base is not _Base.SECOND else LEAST_HELD
            known = self._held[base, level] = min(max(held, least), MOST_HELD)
        return known


def _held_by_prior(base: _Base, within: float) -> float:
    """Return how many samples count as what is assumed of all jobs: of a declaration some, of a guess hardly any."""
    return PRIOR_SAMPLES if base is not _Base.SECOND else min((within / base.spread) ** 2, PRIOR_SAMPLES)


def _deviations(group: _DurationGroup, level: _LevelSpread, within: float) -> tuple[list[float], list[float]]:
    """Return where jobs lie around the centre of their group, with weights: as in the group, and as in its level."""
    own = group.residuals(level.doubt)
    others = level.deviations[-MOST_DEVIATIONS:]
    offsets, weights = list(own), [1.0] * len(own)
    if others:
        offsets += others
        weights += [OWN / len(others)] * len(others)
    else:
        offsets += [within * each for each in (-1.3, -0.5, 0.0, 0.5, 1.3)]
        weights += [OWN / 5.0] * 5
    return offsets, weights


def _base_of(key: Hashable) -> _Base:
    assert isinstance(key, tuple)
    base = key[0]
    assert isinstance(base, _Base)
    return base


def _base(job: Job) -> _Base:
    if job.estimate_s:
        return _Base.ESTIMATE
    return _Base.LIMIT if job.time_limit_s else _Base.SECOND


def _scale(job: Job, base: _Base) -> float | None:
    match base:
        case _Base.ESTIMATE:
            return job.estimate_s or None
        case _Base.LIMIT:
            return job.time_limit_s or None
        case _Base.SECOND:
            return 1.0


Keys = tuple[tuple[Hashable, str], ...]
"""Groups with the names of their levels, from all jobs to those most alike."""


def _by_name(run: PastRun, base: _Base) -> Keys:
    owner, name = run.job.user or str(run.job.tenant), kind_of(run.job.name)
    groups: list[tuple[Hashable, str]] = [((base, "all"), "all"), ((base, "user", owner), "user")]
    if run.command:
        groups.append(((base, "command", owner, run.command), "command"))
    groups.append(((base, "name", owner, name), "name"))
    if name != run.job.name:
        groups.append(((base, "exact name", owner, run.job.name), "exact name"))
    if base is _Base.SECOND:
        groups.append(((base, "name and size", owner, run.job.name, run.job.gpu_milli), "name and size"))
    return tuple(groups)


def _by_size(run: PastRun, base: _Base) -> Keys:
    owner, size = run.job.user or str(run.job.tenant), run.job.gpu_milli
    if base is not _Base.SECOND:
        return ((base, "all"), "all"), ((base, "user", owner), "user")
    return (
        ((base, "all"), "all"),
        ((base, "size", size), "size"),
        ((base, "user and size", owner, size), "user and size"),
    )


def _exp(log: float) -> float:
    """The factor of a logarithm, within what run times can be."""
    return math.exp(min(max(log, -LARGEST_LOG), LARGEST_LOG))
