"""Synchronisation schemes: all of them learn, and a slow worker costs those that wait for it."""

from __future__ import annotations

import pytest

from rota.core.errors import RotaError
from rota.network.sync_schemes import SoftmaxTask, SyncScheme, SyncSetting, train

TASK = SoftmaxTask.make(3)
EQUAL = SyncSetting(compute_s=(0.1,) * 8, transfer_s=0.02, seed=3)
ONE_SLOW = SyncSetting(compute_s=(0.5, *(0.1,) * 7), transfer_s=0.02, seed=3)


@pytest.mark.parametrize("scheme", SyncScheme)
def test_every_scheme_learns(scheme: SyncScheme) -> None:
    found = train(scheme, TASK, EQUAL, 150)

    assert found.losses[-1][1] < 0.6 * found.losses[0][1]
    assert found.accuracy > 2 / TASK.classes


def test_a_slow_worker_delays_only_those_that_wait() -> None:
    slowdown = {
        scheme: train(scheme, TASK, ONE_SLOW, 120).step_s / train(scheme, TASK, EQUAL, 120).step_s
        for scheme in (SyncScheme.ALL_REDUCE, SyncScheme.PRAGUE, SyncScheme.AD_PSGD, SyncScheme.SSP, SyncScheme.ASP)
    }

    assert slowdown[SyncScheme.ALL_REDUCE] > 3
    assert slowdown[SyncScheme.PRAGUE] < 1.25
    assert slowdown[SyncScheme.AD_PSGD] < 1.25
    assert slowdown[SyncScheme.ASP] < slowdown[SyncScheme.SSP]


def test_staleness_is_that_of_the_other_workers() -> None:
    assert train(SyncScheme.ASP, TASK, EQUAL, 100).staleness == pytest.approx(7, abs=0.5)
    assert train(SyncScheme.ALL_REDUCE, TASK, EQUAL, 20).staleness == 0


def test_the_same_seed_gives_the_same_training() -> None:
    assert train(SyncScheme.PRAGUE, TASK, ONE_SLOW, 40) == train(SyncScheme.PRAGUE, TASK, ONE_SLOW, 40)


def test_one_worker_is_refused() -> None:
    with pytest.raises(RotaError, match="at least two workers"):
        SyncSetting(compute_s=(1.0,), transfer_s=0.1)
