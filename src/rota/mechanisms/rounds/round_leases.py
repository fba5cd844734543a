"""The leases of the current round: granted when a round begins, credited as time served when it is over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rota.core.engine.draft import Draft
from rota.mechanisms.rounds.deficits import Deficits
from rota.mechanisms.rounds.lease_rules import LeaseRules, SelectedJob, timed_leases
from rota.mechanisms.rounds.pair_speeds import PairSpeeds
from rota.mechanisms.rounds.round_placement import Selected, fractions_of, is_unmoved
from rota.mechanisms.rounds.rule import RoundJob, members_of
from rota.perf.speed.model import SpeedModel


@dataclass(slots=True)
class RoundLease:
    """A contender that was placed in the current round."""

    selected: Selected
    until_s: float


def credit_served(
    deficits: Deficits,
    leases: Iterable[RoundLease],
    ended_s: Mapping[int, float],
    rules: LeaseRules,
    from_s: float,
) -> None:
    """Credit each contender with the time that it was served in the round, from `from_s` to the end of its lease."""
    for lease in sorted(leases, key=lambda lease: -lease.until_s):
        contender = lease.selected.contender
        last_s = max((ended_s.get(seq, lease.until_s) for seq in members_of(contender)), default=lease.until_s)
        until_s = rules.served_until_s(lease.until_s, last_s)
        for kind, fraction in fractions_of(lease.selected):
            deficits.served(contender, kind, max(until_s - from_s, 0.0) * fraction)


@dataclass(frozen=True, slots=True)
class LeaseGrants:
    """How leases are granted: by the speeds that the selected jobs have on the devices where they were placed."""

    jobs: Mapping[int, RoundJob]
    speed: SpeedModel
    pair_speeds: PairSpeeds
    rules: LeaseRules

    def grant(self, draft: Draft, selected: Selected, round_s: float) -> tuple[RoundLease, list[RoundJob]]:
        """Write the leases of a contender that was placed into the draft; the jobs that got one."""
        members = [self.jobs[seq] for seq in members_of(selected.contender)]
        unmoved = [is_unmoved(job.live, draft.touched.get(job.live)) for job in members]
        placed = [SelectedJob(*each) for each in zip(members, self._speeds(selected, members), unmoved, strict=True)]
        leases_of = timed_leases if self.speed.is_estimate else self.rules.leases
        leases = leases_of(placed, draft.now_s, round_s)
        for job, lease in zip(members, leases, strict=True):
            draft.lease(job.live, lease)
        return RoundLease(selected, max(lease.until_s for lease in leases)), members

    def _speeds(self, selected: Selected, members: Sequence[RoundJob]) -> list[float]:
        contender, at, parts = selected
        if parts:
            return [self.speed.blend(zip(parts, members[0].part_speeds, strict=True))]
        if len(members) > 1:
            speeds: list[float] = self.pair_speeds(members[0], members[1])[:, at].tolist()
            return speeds
        return [members[0].speed(contender, at)]
