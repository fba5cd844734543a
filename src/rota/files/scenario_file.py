"""A scenario as a file: every option of `rota sim` under the same name with underscores, and some that only a file has.

The command line passes through the same model, so that options mean the same in both places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticUndefined

from rota.core.errors import RotaError, did_you_mean
from rota.core.model.job import DeviceType, Level
from rota.files.document import read_document
from rota.files.durations import Seconds
from rota.files.quantities import NotAQuantity, parse_duration
from rota.files.shape import FileModel, checked
from rota.perf.profiles.matrix_completion import Fill
from rota.perf.profiles.partial_profiles import EstimateSpec
from rota.perf.speed.model import SPILLED, Costs, SpeedModel
from rota.scenario import ClusterChange, FaultRates, Scenario

SPREAD_LEVELS = {"rack": Level.RACK, "domain": Level.DOMAIN, "cluster": Level.CLUSTER}
SPREAD_NAMES = (*SPREAD_LEVELS, "network")
BY_PROFILE = "profile"
NEIGHBOUR_NAMES = ("device", "node", "turns", "spilled", "gaps")
FILE_ONLY = ("spilled", "gaps")
"""Factors of neighbours that only a scenario file has."""
BY_STAGES = "stages"
_CLUSTER_FILES = (".yaml", ".yml", ".json", ".csv")

Factors = Mapping[str, float]


def factors(value: object, known: tuple[str, ...] | None = None, word: str | None = None) -> Factors | str:
    """Factors from `name=0.9,name=0.8` or a mapping; `word` may stand in their place. `known` None: any names."""
    if word is not None and value == word:
        return word
    pairs = value.items() if isinstance(value, Mapping) else _pairs(value)
    found: dict[str, float] = {}
    for name, text in pairs:
        if known is not None and name not in known:
            words = known if word is None else (*known, word)
            raise RotaError(f"unknown name {name!r}; {did_you_mean(str(name), words)}")
        try:
            found[str(name)] = float(text)
        except (TypeError, ValueError):
            raise RotaError(f"{name} is {text!r}; it must be a number") from None
        if not 0 < found[str(name)] < math.inf:
            raise RotaError(f"{name} is {text}; it must be above 0")
    return found


def _pairs(value: object) -> list[tuple[str, str]]:
    parts = [part.partition("=") for part in str(value or "").split(",") if part]
    return [(name.strip(), text.strip()) for name, _, text in parts]


def spread_factors(value: object) -> Factors | str:
    """The factors of `spread`."""
    return factors(value, SPREAD_NAMES, BY_PROFILE)


def neighbour_factors(value: object) -> Factors | str:
    """The factors of `neighbours`."""
    return factors(value, NEIGHBOUR_NAMES, BY_STAGES)


def changes(value: object) -> tuple[tuple[float, str], ...]:
    """Moments and clusters from a mapping, or from texts `TIME=FILE`."""
    if isinstance(value, Mapping):
        pairs = [(str(when), str(spec)) for when, spec in value.items()]
    elif isinstance(value, tuple) and all(isinstance(each, tuple) for each in value):
        return value  # read before
    else:
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list | tuple):
            raise RotaError(f"not a cluster change: {value!r}; write it as TIME: FILE, such as 2h: after.yaml")
        pairs = [_change(text) for text in texts]
    found = []
    for when, spec in pairs:
        try:
            found.append((parse_duration(when), spec))
        except NotAQuantity as error:
            raise RotaError(f"{when}={spec}: {error}") from error
    return tuple(found)


def _change(text: object) -> tuple[str, str]:
    if isinstance(text, list | tuple) and len(text) == 2:
        return str(text[0]), str(text[1])
    when, found, spec = str(text).partition("=")
    if not found:
        raise RotaError(f"not a cluster change: {text!r}; write it as TIME=FILE, such as 2h=after.yaml")
    return when, spec


def _as_list(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _read_by(parse: Callable[[object], Any], written: Any = PydanticUndefined) -> BeforeValidator:
    """Parse a field; `written` is the type of what files may say, where it differs from what is parsed."""

    def read(value: object) -> Any:
        try:
            return parse(value)
        except RotaError as error:
            raise ValueError(str(error)) from error

    return BeforeValidator(read, json_schema_input_type=written)


Text = Annotated[str, Field(min_length=1)]
Flag = Annotated[bool, Field(strict=True)]
Cost = Annotated[float, _read_by(parse_duration), Field(ge=0)]


class ScenarioFile(FileModel):
    """The input of a simulation; what is not given is as `rota sim` has it."""

    trace: Text | None = None
    format: Text | None = None
    jobs: Annotated[int, Field(strict=True, ge=1)] | None = None
    skip_bad_lines: Flag = False
    skip_oversized: Flag = False
    cluster: Text | None = None
    change: Annotated[tuple[tuple[float, Text], ...], _read_by(changes, str | list[Any])] = ()
    policy: Annotated[tuple[Text, ...], BeforeValidator(_as_list, json_schema_input_type=str | list[str])] = ()
    placement: Text | None = None
    tenancy: Text = "none"
    profiles: Text | None = None
    reference: Text | None = None
    known_profiles: float | None = None
    estimate: Text | None = None
    observe: Flag = True
    type_speed: Annotated[Factors, _read_by(factors, str | dict[str, float])] = Field(default_factory=dict)
    spread: Annotated[Factors | str, _read_by(spread_factors, str | dict[str, float])] = Field(default_factory=dict)
    neighbours: Annotated[Factors | str, _read_by(neighbour_factors, str | dict[str, Any])] = Field(
        default_factory=dict
    )
    contention: Flag = False
    network: Text | None = None
    speed_factor: Text | None = None
    scaling: float = 1.0
    uneven_batches: Flag = False
    restart_cost: Cost = 0.0
    resume_cost: Cost = 0.0
    move_cost: Cost | None = None
    resize_cost: Cost | None = None
    checkpoint_interval: Cost = 0.0
    checkpoint_time: Cost = 0.0
    checkpoint_write: Cost = 0.0
    load_time: Cost = 0.0
    save_time: Cost = 0.0
    faults: Text | None = None
    mttf: Seconds | None = None
    mttr: Seconds = 3600.0
    failures: Text | None = None
    seed: Annotated[int, Field(strict=True)] = 0


def read_scenario_file(path: Path) -> dict[str, object]:
    """The options that a file gives, checked; names of files in it are relative to where it lies."""
    document = read_document(path)
    file = checked(ScenarioFile, {} if document is None else document, path)
    given: dict[str, Any] = {name: getattr(file, name) for name in file.model_fields_set}
    return relative_to(given, path.parent)


def relative_to(options: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Options whose names of files are relative to a folder."""
    given = dict(options)
    for name in ("trace", "faults", "network"):
        if given.get(name) is not None:
            given[name] = str(folder / given[name])
    if given.get("profiles") not in (None, "catalogue", "none", "plans", "plans:fixed"):
        given["profiles"] = str(folder / given["profiles"])
    if given.get("cluster") is not None:
        given["cluster"] = beside(given["cluster"], folder)
    if "change" in given:
        given["change"] = tuple((at_s, beside(spec, folder)) for at_s, spec in changes(given["change"]))
    if "policy" in given:
        given["policy"] = tuple(code_beside(spec, folder) for spec in given["policy"])
    for name in ("placement", "format", "speed_factor"):
        if given.get(name) is not None:
            given[name] = code_beside(given[name], folder)
    return given


def beside(cluster: str, folder: Path) -> str:
    """A cluster's file relative to a folder; short forms unchanged."""
    return str(folder / cluster) if cluster.endswith(_CLUSTER_FILES) else cluster


def code_beside(spec: str, folder: Path) -> str:
    """A plugin's file relative to a folder; names of the tables unchanged."""
    file, found, rest = spec.partition(".py:")
    return f"{folder / file}{found}{rest}" if found else spec


def merged(given: Mapping[str, object], over: Mapping[str, object]) -> dict[str, object]:
    """Options with others over them; factors are replaced one by one."""
    both = {**given, **over}
    for name in ("type_speed", "spread", "neighbours"):
        below, above = given.get(name), over.get(name)
        if isinstance(below, Mapping) and isinstance(above, Mapping):
            both[name] = {**below, **above}
    return both


def scenario_from(options: Mapping[str, object], source: Path) -> Scenario:
    """The scenario that options describe; `source` is named where they are wrong."""
    file = checked(ScenarioFile, dict(options), source)
    rates = None
    if file.mttf is not None:
        rates = FaultRates(mean_time_to_failure_s=file.mttf, mean_time_to_repair_s=file.mttr)
    return Scenario(
        policies=file.policy,
        placement=file.placement,
        tenancy=file.tenancy,
        cluster=file.cluster,
        changes=tuple(ClusterChange(at_s=at_s, cluster=spec) for at_s, spec in file.change),
        trace=file.trace,
        format=file.format,
        jobs=file.jobs,
        skip_bad_lines=file.skip_bad_lines,
        skip_oversized=file.skip_oversized,
        profiles=file.profiles,
        reference=file.reference,
        estimate=_estimate(file),
        speed=_speed(file),
        costs=Costs(
            restart_s=file.restart_cost,
            checkpoint_interval_s=file.checkpoint_interval,
            checkpoint_s=file.checkpoint_time,
            resume_s=file.resume_cost,
            move_s=file.move_cost,
            resize_s=file.resize_cost,
            checkpoint_write_s=file.checkpoint_write,
            load_s=file.load_time,
            save_s=file.save_time,
        ),
        network=file.network,
        faults=file.faults,
        fault_rates=rates,
        failures=file.failures,
        seed=file.seed,
    )


def _estimate(file: ScenarioFile) -> EstimateSpec | None:
    """How much of the profiles policies know; None: all."""
    if file.known_profiles is None and file.estimate is None:
        return None
    methods = {fill.value: fill for fill in Fill}
    method = file.estimate or Fill.COMPLETION.value
    if method not in methods:
        raise RotaError(f"--estimate: unknown method {method!r}; {did_you_mean(method, methods)}")
    known = 1.0 if file.known_profiles is None else file.known_profiles
    return EstimateSpec(known=known, fill=methods[method], observes=file.observe, seed=file.seed)


def _speed(file: ScenarioFile) -> SpeedModel:
    spread: Factors = {} if isinstance(file.spread, str) else file.spread
    near: Factors = {} if isinstance(file.neighbours, str) else file.neighbours
    return SpeedModel(
        type_speed={DeviceType(name): factor for name, factor in file.type_speed.items()},
        spread={SPREAD_LEVELS[name]: factor for name, factor in spread.items() if name in SPREAD_LEVELS},
        scaling=file.scaling,
        network=spread.get("network", 0.0),
        scattered=file.spread == BY_PROFILE,
        device_neighbour=near.get("device", 1.0),
        node_neighbour=near.get("node", 1.0),
        turns=near.get("turns", 1.0),
        interleaved=file.neighbours == BY_STAGES,
        contention=file.contention,
        factor=file.speed_factor or "",
        uneven=file.uneven_batches,
        spilled=near.get("spilled", SPILLED),
        gaps=near.get("gaps", 0.0),
    )
