"""Rota's own policy keeps the contract on every driver: the scenes of plain policies, played under it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from contract import test_contract as scenes
from contract.scenes import Course, Scene
from contract.test_contract import Play, play

__all__ = ["play"]
pytestmark = pytest.mark.slow
CHECKS: tuple[Callable[[Play], None], ...] = (
    scenes.test_urgent_job_displaces_another_which_goes_on_afterwards,
    scenes.test_elastic_job_shrinks_for_another_and_both_end,
)
MORE: tuple[Callable[[Play], None], ...] = (
    scenes.test_gang_starts_whole_and_the_next_when_there_is_room,
    scenes.test_failed_job_fails_and_the_others_go_on,
    scenes.test_cancelled_job_leaves_its_devices_to_the_next,
    scenes.test_job_of_a_lost_node_starts_again_on_another,
)


def under_own_policy(play: Play) -> Play:
    """Play scenes under `rota` instead of their own policies."""

    def begin(scene: Scene) -> Course:
        return play(replace(scene, policy="rota"))

    return begin


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("test_"))
def test_scene(play: Play, check: Callable[[Play], None]) -> None:
    check(under_own_policy(play))


@pytest.mark.long
@pytest.mark.parametrize("check", MORE, ids=lambda check: check.__name__.removeprefix("test_"))
def test_further_scene(play: Play, check: Callable[[Play], None]) -> None:
    check(under_own_policy(play))
