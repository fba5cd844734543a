"""An experiment as a file: what to combine, with the options of `rota sim` that all runs share.

The command line and Python callers pass through the same model, so that fields mean the same everywhere.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from rota.core.errors import RotaError
from rota.files.document import read_document
from rota.files.quantities import NotAQuantity, parse_duration
from rota.files.scenario_file import beside, code_beside, relative_to, scenario_from
from rota.files.shape import FileModel, checked
from rota.scenario import Experiment, SteadyWindow, Trim
from rota.scenario.experiment import PLAIN

_OF_THE_GRID = ("policy", "trace", "cluster", "seed", "jobs")
"""Options of `rota sim` that an experiment has fields of its own for."""
_JOBS = re.compile(r"(\d+)\s*jobs?", re.ASCII)
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%", re.ASCII)


def parse_trim(value: object) -> Trim:
    """What to leave out, from `200 jobs`, `10%` or a length of time such as `2h`."""
    if isinstance(value, Trim):
        return value
    text = str(value).strip()
    if found := _JOBS.fullmatch(text):
        return Trim(jobs=int(found[1]))
    if found := _PERCENT.fullmatch(text):
        return Trim(fraction=float(found[1]) / 100)
    if _NUMBER.fullmatch(text) and float(text):
        raise RotaError(f"{text} of what is not said; write {text} jobs, {text}% or {text}s")
    try:
        return Trim(seconds=parse_duration(value))
    except NotAQuantity:
        raise RotaError(f"{text!r} is neither jobs nor time; write 200 jobs, 10% or 2h") from None


def _trim(value: object) -> Trim:
    try:
        return parse_trim(value)
    except RotaError as error:
        raise ValueError(str(error)) from error


def _many(value: object) -> object:
    return (value,) if isinstance(value, str | int | float) else value


def _seeds(value: object) -> object:
    """A number of seeds, counted from 0, or the seeds themselves."""
    if isinstance(value, bool):
        raise ValueError("seeds are a number of seeds or a list of them")
    if isinstance(value, int):
        if value < 1:
            raise ValueError(f"{value} seeds; at least 1 is needed")
        return tuple(range(value))
    return value


def policy_grid(value: object) -> tuple[str, ...]:
    """Policies from names and mappings of a name to parameters; a list of values makes a policy of each."""
    items = [value] if isinstance(value, str | Mapping) else value
    if not isinstance(items, list | tuple):
        raise ValueError(f"policies are a list of names, not {value!r}")
    found: list[str] = []
    for item in items:
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, Mapping):
            for name, params in item.items():
                found.extend(_with_parameters(str(name), params))
        else:
            raise ValueError(f"{item!r} is not a policy; write NAME, or NAME: {{parameter: value}}")
    return tuple(found)


def _with_parameters(name: str, params: object) -> list[str]:
    if not params:
        return [name]
    if not isinstance(params, Mapping):
        raise ValueError(f"{name}: {params!r} is not a mapping of parameters to values")
    choices = [
        [f"{key}={_plain(each)}" for each in (given if isinstance(given, list | tuple) else [given])]
        for key, given in params.items()
    ]
    return [f"{name}:{','.join(chosen)}" for chosen in itertools.product(*choices)]


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_many, json_schema_input_type=str | list[str])]
Trimmed = Annotated[Trim, BeforeValidator(_trim, json_schema_input_type=str | float)]
Policies = str | dict[str, Any] | list[str | dict[str, Any]]
Options = dict[str, Any]
Seed = Annotated[int, Field(strict=True)]


class ExperimentFile(FileModel):
    """The fields of an experiment file."""

    name: Text | None = None
    policies: Annotated[tuple[Text, ...], BeforeValidator(policy_grid, json_schema_input_type=Policies)]
    traces: Texts
    clusters: Texts
    loads: Annotated[tuple[float, ...], BeforeValidator(_many, json_schema_input_type=float | list[float])] = ()
    seeds: Annotated[tuple[Seed, ...], BeforeValidator(_seeds, json_schema_input_type=int | list[int])] = (0,)
    jobs: Annotated[int, Field(strict=True, ge=1)] | None = None
    warm_up: Trimmed = Trim()
    cool_down: Trimmed = Trim()
    options: Options = Field(default_factory=dict)
    variants: dict[Text, Options | None] = Field(default_factory=dict)
    metrics: Texts = ()
    own_metrics: Texts = ()
    baseline: Text | None = None


def read_experiment_file(path: Path) -> dict[str, object]:
    """The fields that a file gives; names of files in it are relative to where it lies."""
    document = read_document(path)
    if not isinstance(document, Mapping):
        raise RotaError(f"{path}: an experiment is a mapping of fields such as policies, traces, clusters and seeds")
    file = checked(ExperimentFile, document, path)
    given: dict[str, object] = {name: getattr(file, name) for name in file.model_fields_set}
    folder = path.parent
    given["name"] = file.name or path.stem
    given["traces"] = tuple(_trace_beside(trace, folder) for trace in file.traces)
    given["clusters"] = tuple(beside(spec, folder) for spec in file.clusters)
    given["policies"] = tuple(code_beside(spec, folder) for spec in file.policies)
    given["own_metrics"] = tuple(code_beside(spec, folder) for spec in file.own_metrics)
    given["options"] = relative_to(file.options, folder)
    given["variants"] = {name: relative_to(options or {}, folder) for name, options in file.variants.items()}
    return given


def experiment_from(given: Mapping[str, object], source: Path) -> Experiment:
    """The experiment that fields describe; `source` is named where they are wrong."""
    file = checked(ExperimentFile, dict(given), source)
    variants = {name: options or {} for name, options in file.variants.items()} or {PLAIN: {}}
    for name, options in {"options": file.options, **variants}.items():
        _refuse_options(options, f"{source}: {name}")
        scenario_from({**file.options, **options}, source)
    try:
        return Experiment(
            name=file.name or source.stem,
            policies=file.policies,
            traces=file.traces,
            clusters=file.clusters,
            loads=file.loads or (None,),
            seeds=file.seeds,
            jobs=file.jobs,
            window=SteadyWindow(warm_up=file.warm_up, cool_down=file.cool_down),
            options=file.options,
            variants=variants,
            metrics=file.metrics,
            own_metrics=file.own_metrics,
            baseline=file.baseline,
        )
    except RotaError as error:
        raise RotaError(f"{source}: {error}") from error


def fields_of(experiment: Experiment) -> dict[str, object]:
    """An experiment as fields, from which `experiment_from` makes the same again."""
    return {
        "name": experiment.name,
        "policies": experiment.policies,
        "traces": experiment.traces,
        "clusters": experiment.clusters,
        "loads": tuple(load for load in experiment.loads if load is not None),
        "seeds": experiment.seeds,
        "jobs": experiment.jobs,
        "warm_up": experiment.window.warm_up,
        "cool_down": experiment.window.cool_down,
        "options": dict(experiment.options),
        "variants": {name: dict(options) for name, options in experiment.variants.items()},
        "metrics": experiment.metrics,
        "own_metrics": experiment.own_metrics,
        "baseline": experiment.baseline,
    }


def _refuse_options(options: Mapping[str, object], where: str) -> None:
    for name in _OF_THE_GRID:
        if name in options:
            field = {"policy": "policies", "trace": "traces", "cluster": "clusters", "seed": "seeds"}.get(name, name)
            raise RotaError(f"{where}: {name} is a field of the experiment; write `{field}:` at the top level")


def _trace_beside(trace: str, folder: Path) -> str:
    """A trace file relative to a folder; the names of generated workloads unchanged."""
    return str(folder / trace) if (folder / trace).is_file() else trace
