"""Users are served in rotation by a worker that answers one question at a time."""

from __future__ import annotations

import asyncio

import pytest

from rota.live.workers.fair_turns import MANAGER, FairTurns


async def _answered(askers: list[str], cancelled: int = -1) -> list[str]:
    """The order in which questions are answered that came while one was."""
    turns, order = FairTurns(), []

    async def ask(asker: str) -> None:
        async with turns.turn(asker):
            order.append(asker)
            await asyncio.sleep(0)

    async with turns.turn("first"):
        asked = [asyncio.create_task(ask(asker)) for asker in askers]
        await asyncio.sleep(0)
        if cancelled >= 0:
            asked[cancelled].cancel()
            await asyncio.sleep(0)
    await asyncio.gather(*asked, return_exceptions=True)
    async with turns.turn("last"):
        return order


@pytest.mark.attack(
    "asks for forecasts without end", stopped_by="users are served in rotation; the manager's own come last"
)
def test_user_who_asks_much_waits_for_itself() -> None:
    order = asyncio.run(_answered(["eve", MANAGER, "eve", "eve", "ada", "bob"]))

    assert order == ["eve", "ada", "bob", "eve", "eve", MANAGER]


@pytest.mark.parametrize("cancelled", [0, 1, 2])
def test_question_that_is_given_up_is_skipped(cancelled: int) -> None:
    askers = ["eve", "ada", "bob"]

    assert asyncio.run(_answered(askers, cancelled)) == askers[:cancelled] + askers[cancelled + 1 :]
