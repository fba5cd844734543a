"""Jobs that are submitted one after the other run alike: how much so, and what that says of those that have not ended.

Each run time has a normal score: where it lies in the distribution of jobs like it. The scores of an owner's jobs, in
order of submission, are a Gaussian process: a sum of parts that fade after some, tens and hundreds of jobs, and noise.
How large the parts are is learned from the scores of ended jobs; without a clear likeness there are none, and jobs are
independent. A forward run draws the process for all jobs that have not ended, given those that have: jobs that were
submitted together are long or short together, in the middle as far as the past tells, and together off by the rest.
That a job still runs is evidence too: expectation propagation takes it as in probit regression.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rota.core.model.job import JobId
from rota.forecast.chance import beyond, normal_at, normal_beyond, uniforms

Array = npt.NDArray[np.float64]
FADES = (3.0, 30.0, 300.0)
"""After how many jobs the likeness of each part has fallen to a third."""
LAGS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384)
NEAR = 4
"""Lags, from 1, whose likeness tells whether there is any."""
CLEAR = 3.0
"""Standard errors that it has to exceed."""
MOST_LIKENESS = 0.95
MOST_KNOWN = 256
"""Latest jobs of an owner that tell about those that have not ended."""
MOST_SLOTS = 256
"""Places in the succession for which likeness is drawn; of more jobs, neighbours share one."""
SWEEPS = 4
"""Rounds of expectation propagation."""
BREAKS, BREAKS_PRIOR = 0.05, 10.0
"""The share of jobs that are unlike those before, before anything is known, and how many jobs that counts as."""
FEWEST = 12
"""Pairs of neighbours from which on a likeness is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredJob:
    """A job in the succession of its owner's: its score, the score that it is known to exceed, or neither."""

    id: JobId
    score: float | None = None
    """Where its run time lies; None if it has not ended."""
    exceeds: float | None = None
    """The score of what it has done, if it has not ended."""
    supposed: float | None = None
    """A score that it may come to have, if it runs."""


class Likeness:
    """How alike jobs are, by how many of the same owner lie between them."""

    def __init__(self, successions: Sequence[Sequence[ScoredJob]]) -> None:
        """Learn from successions of scored jobs."""
        self.parts: Array = np.zeros(len(FADES))
        rows = [np.array([_supposed(each) for each in jobs]) for jobs in successions]
        found = [_products(rows, lag) for lag in LAGS]
        pairs = np.array([count for count, _ in found], dtype=float)
        if pairs[0] < FEWEST:
            return
        known = np.concatenate(rows)
        variance = max(float(np.nanmean(known * known)), 1e-9)
        alike = np.array([total / max(count, 1) for count, total in found]) / variance
        near = np.array(LAGS) <= NEAR
        clarity = float(pairs[near] @ alike[near]) / math.sqrt(float(pairs[near].sum()))
        if clarity <= CLEAR:
            return
        shapes = np.exp(-np.array(LAGS)[:, None] / np.array(FADES)[None, :])
        parts = _non_negative_weights(shapes, alike, np.sqrt(pairs))
        parts *= 1.0 - (CLEAR / clarity) ** 2
        self.parts = parts * min(1.0, MOST_LIKENESS / max(float(parts.sum()), 1e-9))

    @property
    def total(self) -> float:
        """The likeness of neighbours: the share of the variance that is not noise."""
        return float(self.parts.sum())

    def between(self, first: Array, second: Array) -> Array:
        """Return the covariance of jobs at some places with those at others."""
        apart = np.abs(first[:, None] - second[None, :])
        found = np.zeros_like(apart)
        for part, fades in zip(self.parts, FADES, strict=True):
            if part > 0:
                found += part * np.exp(-apart / fades)
        return found


class Succession:
    """The jobs of one owner that have not ended, with the process given those that have."""

    def __init__(self, jobs: Sequence[ScoredJob], likeness: Likeness) -> None:
        self._noise = 1.0 - likeness.total
        told = [(place, each) for place, each in enumerate(jobs) if each.score is not None or each.exceeds is not None][
            -MOST_KNOWN:
        ]
        first = told[0][0] if told else 0
        open_jobs = [(place, each.id) for place, each in enumerate(jobs) if each.score is None and place >= first]
        share = max(math.ceil(len(open_jobs) / MOST_SLOTS), 1)
        self._slots: dict[JobId, int] = {job_id: at // share for at, (_, job_id) in enumerate(open_jobs)}
        self._keys = [str(job_id) for at, (_, job_id) in enumerate(open_jobs) if at % share == 0]
        places = [place for at, (place, _) in enumerate(open_jobs) if at % share == 0]
        self._keys.append("next")
        there = np.array([*places, len(jobs)], dtype=float)
        self._break = _break_share(told, likeness, self._noise) if told else 1.0
        self._mean, self._root = _given(told, there, likeness, self._noise, self._break)
        self._fresh = _root(likeness.between(there, there))
        last = max((place for place, each in told if each.score is not None), default=-1)
        self._after = sum(place < last for place in places)
        self._share = share
        self._run: int | None = None
        self._drawn: list[float] = []
        self._others: list[float] = []

    def knows(self, job_id: JobId) -> bool:
        """Return whether a job is one of the latest."""
        return job_id in self._slots

    def draw(self, run: int, job_id: JobId, exceeds: float | None = None) -> float:
        """Return the score of a job in one run; one that is not in the succession comes after the last."""
        if run != self._run:
            (self._drawn, self._others), self._run = self._draw_all(run), run
        slot = self._slots.get(job_id, len(self._keys) - 1)
        alike = self._drawn[slot]
        place, spread = uniforms(run, job_id)[1], math.sqrt(self._noise)
        if exceeds is None:
            return alike + spread * normal_at(place)
        like_others = (1.0 - self._break) * beyond((exceeds - alike) / spread)
        unlike = self._break * beyond(exceeds)
        if uniforms(run, f"unlike {job_id}")[0] * (like_others + unlike) < unlike:
            return normal_beyond(exceeds, beyond(-self._others[slot] - spread * normal_at(place)))
        return alike + spread * normal_beyond((exceeds - alike) / spread, place)

    def _draw_all(self, run: int) -> tuple[list[float], list[float]]:
        """Return the process at all slots in one run, and as if nothing was known of it.

        After a break it has forgotten what was before.
        """
        normals = np.array([normal_at(uniforms(run, key)[0]) for key in self._keys])
        drawn: list[float] = (self._mean + self._root @ normals).tolist()
        lasts = math.log(uniforms(run, "break")[0]) / math.log1p(-min(self._break, 0.999))
        first = self._after + math.ceil(lasts / self._share)
        others: list[float] = (self._fresh @ normals).tolist()
        return drawn[:first] + others[first:], others


def _supposed(job: ScoredJob) -> float:
    if job.score is not None:
        return job.score
    return math.nan if job.supposed is None else job.supposed


def _products(rows: Sequence[Array], lag: int) -> tuple[int, float]:
    """Return the number of pairs so far apart, and the sum of the products of their scores."""
    count, total = 0, 0.0
    for row in rows:
        if len(row) > lag:
            both = row[lag:] * row[:-lag]
            known = both[~np.isnan(both)]
            count += len(known)
            total += float(known.sum())
    return count, total


def _non_negative_weights(shapes: Array, wanted: Array, weights: Array) -> Array:
    """Return the non-negative weights of shapes whose sum comes closest to what is wanted, by coordinate descent."""
    left, right = shapes * weights[:, None], wanted * weights
    squares, across = left.T @ left, left.T @ right
    found: Array = np.zeros(shapes.shape[1])
    for _ in range(200):
        for at in range(len(found)):
            rest = across[at] - squares[at] @ found + squares[at, at] * found[at]
            found[at] = max(rest / max(squares[at, at], 1e-12), 0.0)
    return found


def _given(
    told: Sequence[tuple[int, ScoredJob]], there: Array, likeness: Likeness, noise: float, unlike: float
) -> tuple[Array, Array]:
    """Return the mean of the process at places and a root of its covariance, given what was told."""
    prior = likeness.between(there, there)
    if not told:
        return np.zeros(len(there)), _root(prior)
    here = np.array([place for place, _ in told], dtype=float)
    among = likeness.between(here, here)
    precision, shift = _sites(told, among, noise, unlike)
    root = np.sqrt(precision)
    lower = np.linalg.cholesky(np.eye(len(here)) + root[:, None] * among * root[None, :])
    across = likeness.between(there, here)
    solved = np.linalg.solve(lower, root[:, None] * across.T)
    # mean = across (among + precision^-1)^-1 (shift / precision), written without the inverse of small precisions
    weight = shift - root * np.linalg.solve(lower.T, np.linalg.solve(lower, root * (among @ shift)))
    return across @ weight, _root(prior - solved.T @ solved)


def _root(covariance: Array) -> Array:
    return np.asarray(np.linalg.cholesky(covariance + 1e-6 * np.eye(len(covariance))), dtype=np.float64)


def _break_share(told: Sequence[tuple[int, ScoredJob]], likeness: Likeness, noise: float) -> float:
    """Return how many of the ended jobs were better told by all jobs than by those before them."""
    ended = [(place, each.score) for place, each in told if each.score is not None]
    here = np.array([place for place, _ in ended], dtype=float)
    scores = np.array([score for _, score in ended])
    lower = np.linalg.cholesky(likeness.between(here, here) + noise * np.eye(len(here)))
    found = np.linalg.solve(lower, scores)
    alike = np.exp(-0.5 * found * found) / np.diag(lower)
    unlike = np.exp(-0.5 * scores * scores)
    share = BREAKS
    for _ in range(20):
        shares = share * unlike / (share * unlike + (1.0 - share) * alike + 1e-300)
        share = (float(shares.sum()) + BREAKS * BREAKS_PRIOR) / (len(ended) + BREAKS_PRIOR)
    return share


def _sites(told: Sequence[tuple[int, ScoredJob]], among: Array, noise: float, unlike: float) -> tuple[Array, Array]:
    """Return what each job tells about the process at its place: a precision, and the precision times a value."""
    count = len(told)
    precision: Array = np.zeros(count)
    shift: Array = np.zeros(count)
    running: list[tuple[int, float]] = []
    for at, (_, each) in enumerate(told):
        if each.score is not None:
            precision[at], shift[at] = 1.0 / noise, each.score / noise
        elif each.exceeds is not None:
            running.append((at, each.exceeds))
    for _ in range(SWEEPS if running else 0):
        root = np.sqrt(precision)
        lower = np.linalg.cholesky(np.eye(count) + root[:, None] * among * root[None, :])
        solved = np.linalg.solve(lower, root[:, None] * among)
        covariance = among - solved.T @ solved
        mean = covariance @ shift
        for at, exceeds in running:
            spread = 1.0 / max(1.0 / covariance[at, at] - precision[at], 1e-6)
            middle = spread * (mean[at] / covariance[at, at] - shift[at])
            wide = math.sqrt(noise + spread)
            z = (middle - exceeds) / wide
            pull = _pull(z, unlike, exceeds)
            new_mean = middle + spread * pull / wide
            new_spread = max(spread - spread * spread * pull * (z + pull) / (wide * wide), 1e-6)
            wanted = max(1.0 / new_spread - 1.0 / spread, 1e-9)
            precision[at] = 0.5 * (precision[at] + wanted)
            shift[at] = 0.5 * (shift[at] + new_mean / new_spread - middle / spread)
    return precision, shift


def _pull(z: float, unlike: float, exceeds: float) -> float:
    """Return the slope of the log probability of going on, of a job that may be like the others or not."""
    likely = (1.0 - unlike) * beyond(-z) + unlike * beyond(exceeds)
    density = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    return (1.0 - unlike) * density / likely if likely > 1e-30 else max(-z, 0.0)
