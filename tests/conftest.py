"""Options and fixtures of all tests: what a test leaves behind must hold together."""

from __future__ import annotations

import gc
import runpy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import builders
import forked
from rota.core.engine.invariants import check

settings.register_profile(
    "rota", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], max_examples=25
)
settings.load_profile("rota")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to test compiled modules whose sources have changed since."""
    stale = runpy.run_path(str(Path(__file__).parent.parent / "tools" / "compile.py"))["stale"]()
    if stale:
        raise pytest.UsageError(f"{', '.join(stale)}: compiled before the last edit; `make compile` or `make pure`")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage while tests are collected, nor among all of them and their modules later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    forked.fork(wanted=item.get_closest_marker("executable") is None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regenerate", action="store_true", help="regenerate the golden journals")
    parser.addoption("--long", action="store_true", help="also run what looks for rare faults for minutes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes minutes runs only where that is asked for; several workers get whole modules first."""
    if not config.getoption("--long"):
        left_out = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _turn(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Workers get whole modules, for what their tests share is made once; tests that share nothing one by one.

    All that need a control plane of one kind go to one worker, for a start of it takes as long as several tests.
    """
    from xdist.scheduler import LoadScopeScheduling

    scheduling = LoadScopeScheduling(config, log)
    whole = scheduling._split_scope

    def scope(nodeid: str) -> str:
        if _stands_alone(nodeid):
            return nodeid
        module = nodeid.partition("::")[0]
        if module.startswith("tests/e2e/kubernetes/"):
            return f"kubernetes {_has_controllers(module)}"
        return str(whole(nodeid))

    scheduling._split_scope = scope
    return scheduling


def _turn(nodeid: str) -> int:
    """When a test has its turn: what waits long first, then what needs a control plane, which may yet be built.

    Last come tests that are given out one by one, so that all workers end at about the same time.
    """
    if _stands_alone(nodeid):
        return 3
    if nodeid.startswith(("tests/e2e/kubernetes/", "tests/contract/")):
        return 1
    return 0 if nodeid.startswith(("tests/e2e/", "tests/attacks/", "tests/web/", "tests/packages/")) else 2


@cache
def _has_controllers(module: str) -> bool:
    """Whether a module's tests need a control plane with controllers."""
    return "managed: Bed" in Path(__file__).parent.parent.joinpath(module).read_text(encoding="utf-8")


def _stands_alone(nodeid: str) -> bool:
    return nodeid.startswith(("tests/core/", "tests/mechanisms/", "tests/policies/"))


@pytest.fixture
def regenerate(request: pytest.FixtureRequest) -> bool:
    """Whether the golden journals are to be written instead of compared."""
    return bool(request.config.getoption("--regenerate"))


@pytest.fixture(autouse=True)
def _worlds_hold_together() -> Iterator[None]:
    """Every state that a test built through `World` is checked when the test is over."""
    builders.made.clear()
    yield
    worlds = list(builders.made)
    builders.made.clear()
    for world in worlds:
        check(world.state)
