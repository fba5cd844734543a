"""One run of an experiment, from its point to a row of results; the same in every process."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from rota.core.errors import BuiltInFault, InvariantBroken, RotaError
from rota.core.model.cluster import Cluster
from rota.drivers.simulator.load import LoadedScenario, load
from rota.drivers.simulator.notes import RunNote, outcome_notes, scenario_notes
from rota.drivers.simulator.study import simulate
from rota.experiments.points import GridPoint, GridSetting
from rota.experiments.workloads import forget_traces, jobs_in_file, workload_of
from rota.files.cluster import read_cluster
from rota.files.scenario_file import scenario_from
from rota.perf.device_facts import assumed_facts
from rota.plugins import forget_loaded
from rota.report.measured_run import MeasuredRun, measured_run
from rota.report.named_metrics import COLUMNS, measure_named
from rota.report.timeline import Timeline
from rota.report.user_metrics import measure_by, user_metrics
from rota.scenario import Experiment
from rota.traces.readers.alibaba import read_alibaba_nodes

ASSUMED_FACTS = "assumed-facts"
"""The code of the note on energy and cost, which matters where one of them is shown."""
JobTable = Mapping[str, list[float] | list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PointResult:
    """What a run gave: a row of plain values, and what is known of each measured job, or why there is no row."""

    key: str
    row: Mapping[str, Any]
    jobs: JobTable
    error: str | None = None


def run_point(experiment: Experiment, point: GridPoint) -> PointResult:
    """Simulate and measure one run; a failure of it becomes an error, so that other runs go on."""
    begun = time.perf_counter()
    base = _identity(experiment, point)
    try:
        loaded, in_file = _loaded(_Frozen(experiment), point.setting)
        timeline = Timeline(loaded.setting.cluster)
        result = simulate(loaded.workload, point.policy, loaded.setting, journal=timeline)
        measured = measured_run(result.history, timeline, loaded.setting.cluster, experiment.window)
        own = measure_by(user_metrics(experiment.own_metrics), result.history)
    except (RotaError, BuiltInFault, InvariantBroken) as error:
        return PointResult(key=point.key, row=base, jobs={}, error=str(error) or type(error).__name__)
    told = [*_notes_before(loaded, point.policy), *outcome_notes(result.history), *assumptions(measured)]
    row = {
        **base,
        "placement": result.placement,
        **measure_named(measured),
        **own,
        **_window_columns(measured),
        "jobs_in_file": in_file,
        "left_out": loaded.left_out + loaded.workload.left_out + loaded.workload.skipped,
        "notes": json.dumps([[note.code, note.text] for note in told]),
        "is_caveat": any(note.is_caveat for note in told),
        "events": result.events,
        "cpu_s": result.cpu_s,
        "wall_s": time.perf_counter() - begun,
    }
    return PointResult(key=point.key, row=row, jobs=_job_table(measured))


def assumptions(measured: MeasuredRun) -> Iterator[RunNote]:
    """What energy and cost of a run assume."""
    text = assumed_facts(tuple(measured.capacity_s))
    if text is not None:
        yield RunNote(code=ASSUMED_FACTS, text=text)


def _identity(experiment: Experiment, point: GridPoint) -> dict[str, Any]:
    setting = point.setting
    return {
        "key": point.key,
        "experiment": experiment.name,
        "trace": setting.trace,
        "cluster": setting.cluster,
        "variant": setting.variant,
        "load": setting.load,
        "seed": setting.seed,
        "policy": point.policy,
        "options": json.dumps(
            {**experiment.options, **experiment.variants[setting.variant]}, default=str, sort_keys=True
        ),
    }


def _window_columns(measured: MeasuredRun) -> dict[str, Any]:
    return {
        "jobs": measured.jobs,
        "finished": measured.finished,
        "window_from_s": measured.from_s,
        "window_until_s": measured.until_s,
        "excludes_drain": measured.excludes_drain,
        "mean_devices": measured.devices,
    }


def _job_table(measured: MeasuredRun) -> JobTable:
    return {"id": list(measured.ids), **{name: of(measured).tolist() for name, of in COLUMNS.items()}}


class _Frozen:
    """An experiment as a key of a cache: there is only one in a process."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment

    def __hash__(self) -> int:
        return hash(self.experiment.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Frozen) and self.experiment == other.experiment


@lru_cache(maxsize=2)
def _loaded(frozen: _Frozen, setting: GridSetting) -> tuple[LoadedScenario, int | None]:
    """The scenario of a setting, read and checked once for all of its policies, and the jobs of its file."""
    experiment = frozen.experiment
    options = {**experiment.options, **experiment.variants[setting.variant]}
    scenario = replace(
        scenario_from(options, Path(experiment.name)),
        policies=experiment.policies,
        cluster=setting.cluster,
        seed=setting.seed,
    )
    cluster = _cluster(setting.cluster)
    workload = workload_of(
        setting.trace,
        devices=cluster.devices,
        load=setting.load,
        seed=setting.seed,
        jobs=experiment.jobs,
        format=scenario.format,
        skip_bad_lines=scenario.skip_bad_lines,
    )
    loaded = load(replace(scenario, trace=setting.trace), workload)
    return loaded, jobs_in_file(setting.trace, scenario.format, scenario.skip_bad_lines)


def _cluster(spec: str) -> Cluster:
    return read_alibaba_nodes(Path(spec)) if spec.endswith(".csv") else read_cluster(spec)


def _notes_before(loaded: LoadedScenario, policy: str) -> Iterator[RunNote]:
    """What is known of one policy's run in advance: its row is kept, whichever policies it is compared with later."""
    alone = replace(loaded, scenario=replace(loaded.scenario, policies=(policy,)))
    return (note for note in scenario_notes(alone) if note.code != "seed-without-effect")


def forget_inputs() -> None:
    """Read files again when they are next needed: they may have changed since the last experiment of this process."""
    _loaded.cache_clear()
    forget_traces()
    forget_loaded()
