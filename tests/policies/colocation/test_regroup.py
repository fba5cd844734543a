"""Regrouping: which jobs are grouped, how many of them, and which devices a group keeps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from builders import job
from rota.core.model.placement import Placement, Slot
from rota.core.state.job_record import LiveJob
from rota.mechanisms.colocation.groups import DeviceGroups
from rota.mechanisms.colocation.regroup import Group, anchors, form


def live(seq: int, *, gpus: float = 1, placement: Placement | None = None) -> LiveJob:
    """A job with a sequence number, on devices if a placement is given."""
    made = LiveJob(job(f"j{seq}", gpus=gpus), seq, 0.0, 1.0)
    made.placement = placement
    return made


def grouped(jobs: Sequence[LiveJob], devices: int, *, most: int = 2) -> list[list[int]]:
    """Sequence numbers of the groups, where every pair has the same weight."""
    found = form(jobs, devices, most, lambda one, other: 1.0, lambda one, other: False, lambda asked: (0.0,))
    return [sorted(each.seq for each in group) for group in found]


def test_jobs_that_exactly_fill_groups_are_all_considered() -> None:
    jobs = [live(seq) for seq in range(4)]

    assert sorted(chain(*grouped(jobs, devices=2))) == [0, 1, 2, 3]


def test_jobs_beyond_full_groups_wait() -> None:
    jobs = [live(seq) for seq in range(5)]

    assert sorted(chain(*grouped(jobs, devices=2))) == [0, 1, 2, 3]


def test_jobs_with_devices_enough_stay_alone() -> None:
    assert grouped([live(0), live(1)], devices=2) == [[0], [1]]


def test_only_as_many_groups_are_merged_as_needed() -> None:
    found = grouped([live(seq) for seq in range(4)], devices=3)

    assert sorted(map(len, found)) == [1, 1, 2]


def test_groups_hold_jobs_of_equal_size() -> None:
    found = grouped([live(0, gpus=2), live(1), live(2, gpus=2), live(3)], devices=3)

    assert found == [[0, 2], [1, 3]]


def test_group_keeps_the_devices_of_most_members_that_no_earlier_group_keeps() -> None:
    first, second = (Slot(0, 0b01, 1),), (Slot(0, 0b10, 1),)
    jobs = [live(0, placement=first), live(1, placement=first), live(2, placement=second), live(3, placement=first)]
    groups = DeviceGroups()
    for each in jobs:
        groups.rekey(each)
    formed: list[Group] = [[jobs[0], jobs[1], jobs[2]], [jobs[3]], [live(4)]]

    assert anchors(formed, groups) == [((0, 0b01),), None, None]
