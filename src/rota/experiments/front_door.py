"""What `import rota` offers for studies: simulations and experiments as functions, results as polars DataFrames."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.core.errors import RotaError
from rota.core.state.history import History
from rota.drivers.simulator.load import load, read_workload
from rota.drivers.simulator.notes import outcome_notes, scenario_notes
from rota.drivers.simulator.study import simulate as simulate_one
from rota.experiments.experiment_file import experiment_from, fields_of, parse_trim
from rota.experiments.run_point import assumptions
from rota.experiments.text_tables import place_name
from rota.files.scenario_file import scenario_from
from rota.plugins import forget_loaded
from rota.report.measured_run import measured_run
from rota.report.named_metrics import METRICS_BY_NAME, find_metrics, measure_named
from rota.report.timeline import Timeline
from rota.scenario import Experiment, SteadyWindow
from rota.traces.generators import DEFAULT_GPUS, DEFAULT_LOAD
from rota.traces.generators import generate as generate_workload
from rota.traces.workload import Workload

if TYPE_CHECKING:
    import plotly.graph_objects as go
    import polars

    from rota.experiments.summary import ExperimentSummary

_HERE = Path("rota.simulate")
_GRID = Path("rota.experiment")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """The runs of several policies on one workload: a row of metrics for each, and its jobs."""

    rows: polars.DataFrame
    """One row per policy, with every metric by name, and the notes that limit what the figures say."""
    histories: Mapping[str, History] = field(repr=False)

    def jobs(self, policy: str | None = None) -> polars.DataFrame:
        """One row per job of a policy's run; the policy may be left out if there is only one."""
        from rota.report.tables import jobs_table

        return jobs_table(self.histories[self._named(policy)])

    def plot(self) -> go.Figure:
        """The cumulative share of jobs by completion time, a line per policy."""
        import numpy as np

        from rota.report import figures
        from rota.report.runs import JobColumns

        columns = []
        for policy in self.histories:
            table = self.jobs(policy).drop_nulls(["jct_s", "start_s"])
            nothing = np.zeros(table.height)
            columns.append(
                JobColumns(
                    name=policy,
                    jct_s=table["jct_s"].to_numpy(),
                    slowdown=nothing,
                    fairness=nothing,
                    gpus=table["gpus"].to_numpy(),
                    preemptions=nothing,
                    tenants=tuple(table["tenant"]),
                )
            )
        return figures.jct_cdf(columns)

    def _named(self, policy: str | None) -> str:
        if policy is None and len(self.histories) == 1:
            return next(iter(self.histories))
        if policy is None or policy not in self.histories:
            raise RotaError(f"state which policy: {', '.join(self.histories)}")
        return policy


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentResult:
    """The rows of an experiment, with tables and figures of them; all files are in `folder`."""

    definition: Experiment
    rows: polars.DataFrame
    """One row per run, with every metric by name, its notes and its provenance."""
    folder: Path
    failed: Mapping[str, str]
    """Runs that failed, each with the reason."""

    def table(self, metric: str | None = None) -> polars.DataFrame:
        """Means with 95% intervals by workload, load and policy, and ratios to the baseline on the same jobs."""
        import polars as pl

        name = self._metric(metric)
        rows = []
        for row in self.summary(name).rows:
            value, pair = row.values.get(name), row.against.get(name)
            ratio = None if pair is None else pair.ratio
            rows.append(
                {
                    **dict(zip(("trace", "cluster", "variant", "load"), row.group, strict=True)),
                    "policy": row.policy,
                    "seeds": row.seeds,
                    name: None if value is None else value.value,
                    "low": None if value is None else value.low,
                    "high": None if value is None else value.high,
                    "ratio": None if ratio is None else ratio.value,
                    "ratio_low": None if ratio is None else ratio.low,
                    "ratio_high": None if ratio is None else ratio.high,
                    "has_caveat": row.has_caveat,
                }
            )
        return pl.DataFrame(rows, infer_schema_length=None)

    def plot(
        self,
        metric: str | None = None,
        *,
        trace: str | None = None,
        cluster: str | None = None,
        variant: str | None = None,
    ) -> go.Figure:
        """A metric over the load with bands, for one workload, cluster and variant (the first of each if not named);
        with a single load, ratios to the baseline over all."""
        from rota.experiments import figures

        name = self._metric(metric)
        summary = self.summary(name)
        if len(self.definition.loads) < 2:
            if not summary.overall[name]:
                raise RotaError("one policy at one load makes no figure; give several policies or loads, or see `rows`")
            return figures.ratio_forest(summary, METRICS_BY_NAME[name])
        place = (
            _one_of("workload", trace, self.definition.traces),
            _one_of("cluster", cluster, self.definition.clusters),
            _one_of("variant", variant, tuple(self.definition.variants)),
        )
        rows = [row for row in summary.rows if row.group[:3] == place]
        return figures.load_curves(summary, METRICS_BY_NAME[name], rows, place_name(summary, place))

    def summary(self, *metrics: str) -> ExperimentSummary:
        """Everything that tables and figures show, of these metrics."""
        from rota.experiments.summary import summarise

        chosen = replace(self.definition, metrics=metrics or self.definition.metrics)
        return summarise(chosen, self.rows, self.folder)

    def report(self) -> Path:
        """Write `report.html`, `tables.md` and `tables.tex` into the folder, and return the page."""
        from rota.experiments.report import write_experiment_report

        return write_experiment_report(self.folder, self.summary(), "rota.experiment(...)")[0]

    def _metric(self, metric: str | None) -> str:
        (found,) = find_metrics([metric or (self.definition.metrics or ("avg_jct_s",))[0]])
        return found.name


def _one_of(what: str, given: str | None, known: tuple[str, ...]) -> str:
    """The value that was named, or the first."""
    if given is not None and given not in known:
        raise RotaError(f"there is no {what} {given!r}; known: {', '.join(known)}")
    return given or known[0]


def read_trace(
    path: str | Path,
    *,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    skip_bad_lines: bool = False,
) -> Workload:
    """Read a trace of any known format; `columns` names those of any other CSV, as `{"submit": "ts", ...}`."""
    if columns:
        from rota.traces.readers.any_csv import read_columns

        return read_columns(Path(path), columns, skip_bad_lines=skip_bad_lines)
    return read_workload(
        scenario_from({"trace": str(path), "format": format, "skip_bad_lines": skip_bad_lines}, Path("rota.read_trace"))
    )


def generate(
    kind: str,
    *,
    jobs: int = 1000,
    seed: int = 0,
    gpus: int = DEFAULT_GPUS,
    load: float = DEFAULT_LOAD,
    elastic: float = 0.0,
    deadlines: float = 0.0,
) -> Workload:
    """A generated workload, as of `rota trace generate`."""
    return generate_workload(kind, jobs=jobs, seed=seed, gpus=gpus, load=load, elastic=elastic, deadlines=deadlines)


def simulate(
    trace: Workload | str | Path,
    *,
    cluster: str | None = None,
    policy: str | Sequence[str] = "fifo",
    warm_up: object = 0,
    cool_down: object = 0,
    **options: object,
) -> SimulationResult:
    """Run a workload under one or more policies; `options` are those of `rota sim`, with underscores."""
    import polars as pl

    forget_loaded()
    policies = (policy,) if isinstance(policy, str) else tuple(policy)
    if not policies:
        raise RotaError("state at least one policy, such as policy='las'; rota.policies.names() lists them")
    window = SteadyWindow(warm_up=parse_trim(warm_up), cool_down=parse_trim(cool_down))
    scenario = scenario_from({**options, "policy": policies, "cluster": cluster}, _HERE)
    named = scenario if isinstance(trace, Workload) else replace(scenario, trace=str(trace))
    loaded = load(named, trace if isinstance(trace, Workload) else None)
    before = scenario_notes(loaded)
    rows, histories = [], {}
    for spec in policies:
        timeline = Timeline(loaded.setting.cluster)
        result = simulate_one(loaded.workload, spec, loaded.setting, journal=timeline)
        measured = measured_run(result.history, timeline, loaded.setting.cluster, window)
        own = (note for note in before if note.is_about(spec))
        notes = [*own, *outcome_notes(result.history), *assumptions(measured)]
        rows.append(
            {
                "policy": spec,
                "placement": result.placement,
                "jobs": measured.jobs,
                "finished": measured.finished,
                **measure_named(measured),
                "notes": [note.text for note in notes],
                "is_caveat": any(note.is_caveat for note in notes),
            }
        )
        histories[spec] = result.history
    schema = {"notes": pl.List(pl.String)}
    return SimulationResult(rows=pl.DataFrame(rows, schema_overrides=schema), histories=histories)


def experiment(
    definition: Experiment | str | Path | None = None,
    *,
    out: str | Path | None = None,
    processes: int = 1,
    progress: Callable[[int, int], None] | None = None,
    **fields: object,
) -> ExperimentResult:
    """Run an experiment: a definition, a file, or the fields of one; without `out` its folder is a temporary one.

    A trace may also be a workload, of `read_trace` or `generate`; it is kept in the folder.
    """
    from rota.experiments.runner import run_experiment

    folder = Path(tempfile.mkdtemp(prefix="rota-experiment-")) if out is None else Path(out)
    defined = _defined(definition, {**fields, **_kept_traces(fields, folder)})
    outcome = run_experiment(defined, folder, processes=processes, progress=progress)
    return ExperimentResult(
        definition=defined,
        rows=outcome.table,
        folder=folder,
        failed={
            f"{point.policy} on {point.setting.trace}, seed {point.setting.seed}": why for point, why in outcome.failed
        },
    )


def _kept_traces(fields: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The traces of a call with workloads as files of its folder; nothing if none is a workload."""
    from rota.experiments.results_folder import claim_folder
    from rota.experiments.workloads import kept_as_file

    given = fields.get("traces")
    traces = list(given) if isinstance(given, list | tuple) else [given]
    if not any(isinstance(each, Workload) for each in traces):
        return {}
    claim_folder(folder)
    kept = [kept_as_file(each, folder / "traces") if isinstance(each, Workload) else each for each in traces]
    return {"traces": kept}


def _defined(definition: Experiment | str | Path | None, fields: Mapping[str, Any]) -> Experiment:
    if isinstance(definition, Experiment):
        return experiment_from({**fields_of(definition), **fields}, _GRID)
    if definition is None:
        return experiment_from({"name": "experiment", **fields}, _GRID)
    from rota.experiments.experiment_file import read_experiment_file

    path = Path(definition)
    return experiment_from({**read_experiment_file(path), **fields}, path)
