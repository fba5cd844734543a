"""The Gymnasium environment: what the mask allows can be done, and progress is what is rewarded."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="needs Gymnasium: pip install 'rota[learn]'")

from gymnasium.utils.env_checker import check_env

from rota.core.errors import RotaError
from rota.learn.environment import PlacementEnv


@pytest.mark.filterwarnings("ignore:.*Box observation space maximum value is infinity.*")
def test_environment_is_as_gymnasium_wants_it() -> None:
    check_env(PlacementEnv(servers=3, intervals=20), skip_render_check=True)


def test_random_masked_actions_place_jobs_that_progress() -> None:
    env = PlacementEnv(servers=3, intervals=60)
    rng = np.random.default_rng(1)
    seen, info = env.reset(seed=5)
    total, truncated = 0.0, False
    while not truncated:
        seen, reward, ended, truncated, info = env.step(rng.choice(np.flatnonzero(info["mask"])))
        total += reward
        assert not ended
        assert env.observation_space.contains(seen)
        if not truncated:
            assert info["mask"].any()

    assert total > 2.0
    assert (seen["v"] >= 0).all()


def test_same_seed_is_the_same_workload() -> None:
    first, second = PlacementEnv(servers=2, intervals=10), PlacementEnv(servers=2, intervals=10)

    one, _ = first.reset(seed=3)
    other, _ = second.reset(seed=3)
    another, _ = second.reset(seed=4)

    assert all(np.array_equal(one[name], other[name]) for name in one)
    assert any(not np.array_equal(one[name], another[name]) for name in one)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((field, value) for field in ("servers", "intervals", "batch") for value in (0, -1, 2.5, float("nan"))),
        *(("load", value) for value in (0, -1, 1e-9, 1e9, float("nan"), float("inf"))),
    ],
)
def test_world_that_can_not_be_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(RotaError, match=rf"^{field} is {value}; it must be"):
        PlacementEnv(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("load", [0.001, 100])
def test_least_and_most_load_are_worlds_too(load: float) -> None:
    env = PlacementEnv(servers=1, intervals=3, load=load)
    _, info = env.reset(seed=1)

    *_, truncated, _ = env.step(np.int64(0))

    assert info["mask"].any() == (load > 1)
    assert truncated == (load < 1)
