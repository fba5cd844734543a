"""The runs of `rota sim`: a scenario is loaded, and each of its policies is simulated and measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from rota.cli.study.failures import failure_metrics
from rota.core.state.history import History
from rota.drivers.simulator.load import PROFILES, LoadedScenario, load, read_workload
from rota.drivers.simulator.study import Result, simulate
from rota.health.lost_time import FailureReport
from rota.perf.profiles.profile_files import write_profiles
from rota.report.metrics import Metrics, measure_with_tenants
from rota.report.user_metrics import measure_by, user_metrics
from rota.scenario import Scenario
from rota.store.journal import JournalWriter
from rota.traces.readers.journal import JOURNAL
from rota.traces.source import open_source

if TYPE_CHECKING:
    from rota.report.sketch import Sketch
    from rota.report.timeline import Timeline


class Keep(Enum):
    """How much of a run outlives it."""

    FIGURES = "figures"
    """Only its metrics."""
    SKETCH = "sketch"
    """Also what a few lines of text show of it."""
    ALL = "all"
    """Also the history of every job and the holders of the devices over time, as a report needs them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The result of one policy's run, with as much of the run as was to be kept."""

    scenario: Scenario
    """The run as its journal's header describes it."""
    metrics: Metrics
    tenants: dict[str, Metrics]
    events: int
    wall_s: float
    cpu_s: float
    more: Mapping[str, float | None] = field(default_factory=dict)
    """Metrics of the user's own, by name."""
    failures: FailureReport | None = None
    """What failures cost, where machines fail."""
    history: History | None = None
    timeline: Timeline | None = None
    sketch: Sketch | None = None


def prepare(scenario: Scenario) -> LoadedScenario:
    """Load a scenario; with contention, the slowdown that a journal's jobs already suffered is taken out first."""
    workload = read_workload(scenario)
    if scenario.speed.contention and scenario.trace is not None and workload.format == JOURNAL:
        from rota.learn.undisturbed import read_undisturbed

        workload = read_undisturbed(workload, open_source(Path(scenario.trace))) or workload
    return load(scenario, workload)


def run_policy(
    loaded: LoadedScenario,
    policy: str,
    *,
    keep: Keep = Keep.FIGURES,
    metrics: Sequence[str] = (),
    folder: Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> Finished:
    """Simulate one policy; with a folder, write its journal there."""
    if keep is Keep.FIGURES and folder is None:
        result = simulate(loaded.workload, policy, loaded.setting, progress=progress)
        return _finished(loaded, result, keep, metrics, None)
    from rota.report.timeline import Tee, Timeline

    timeline = Timeline(loaded.setting.cluster)
    if folder is None:
        result = simulate(loaded.workload, policy, loaded.setting, journal=timeline, progress=progress)
        return _finished(loaded, result, keep, metrics, timeline)
    folder.mkdir(parents=True, exist_ok=True)
    if loaded.speeds.profiles is not None and not loaded.speeds.is_file:
        write_profiles(loaded.speeds.profiles, folder / PROFILES)
    with JournalWriter(folder / "journal.jsonl", loaded.header_of(policy)) as writer:
        result = simulate(loaded.workload, policy, loaded.setting, journal=Tee(writer, timeline), progress=progress)
    return _finished(loaded, result, keep, metrics, timeline)


def _finished(
    loaded: LoadedScenario, result: Result, keep: Keep, metrics: Sequence[str], timeline: Timeline | None
) -> Finished:
    from rota.report.sketch import sketch_of

    whole, tenants = measure_with_tenants(result.history)
    return Finished(
        scenario=loaded.run_of(result.policy),
        metrics=whole,
        tenants=tenants,
        events=result.events,
        wall_s=result.wall_s,
        cpu_s=result.cpu_s,
        more=failure_metrics(result.failures) | measure_by(user_metrics(metrics), result.history),
        failures=result.failures,
        history=result.history if keep is Keep.ALL else None,
        timeline=timeline if keep is Keep.ALL else None,
        sketch=None if timeline is None else sketch_of(result.history, timeline),
    )
