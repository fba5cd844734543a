"""The sweep file: what is searched, by which sampler and rule, and the job that each trial runs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

from rota.core.errors import RotaError
from rota.files.document import read_document
from rota.files.job import job_file
from rota.files.job_shape import JobFile, Name, Text
from rota.files.shape import FileModel, checked
from rota.sweeps.log_pattern import compiled
from rota.sweeps.space import Bound, Parameters, longest_text
from rota.sweeps.trial import Params

Json = dict[str, Any]
MOST_TRIALS = 10_000
MOST_PARALLEL = 1000
MOST_STEPS = 1 << 40
USUAL_PARALLEL = 16
MOST_LEARNT = 50_000
"""Values of the trials of a sampler that learns from all of them for each."""
MOST_TEXT = 32_768
"""Characters of the values of one trial, which are variables of its job."""
_OWN_FIELDS = ("name", "tenant", "array", "member")
"""Fields of a job that the sweep sets."""
Steps = Annotated[int, Field(strict=True, ge=1, le=MOST_STEPS)]


def _pattern(value: str) -> str:
    compiled(value)
    return value


class ObjectivePart(FileModel):
    """What is optimised: a metric that trials report, or find in a line of their output."""

    metric: Annotated[Text, Field(min_length=1, max_length=64)] = "loss"
    goal: Literal["minimize", "maximize"] = "minimize"
    target: Annotated[Bound | None, Field(description="The sweep ends when a trial reaches it.")] = None
    log: Annotated[
        Annotated[Text, Field(max_length=500), AfterValidator(_pattern)] | None,
        Field(description="A pattern of output lines with {value} and {step}."),
    ] = None


class StoppingPart(FileModel):
    """The rule of early stopping, and its numbers."""

    rule: Literal["none", "asha", "hyperband", "median", "learning-curve"] = "none"
    min_steps: Annotated[Steps, Field(description="Steps before the first decision.")] = 1
    max_steps: Annotated[Steps | None, Field(description="Steps of a whole trial.")] = None
    factor: Annotated[int, Field(strict=True, ge=2, le=16, description="One of so many goes on.")] = 4
    every: Annotated[Steps | None, Field(description="Steps between decisions: median, learning-curve.")] = None
    least_trials: Annotated[int, Field(strict=True, ge=1, le=1000, description="Others for a median.")] = 4
    least_chance: Annotated[float, Field(ge=0, le=1, description="Below it a learning curve is poor.")] = 0.05

    @model_validator(mode="after")
    def _agree(self) -> StoppingPart:
        if self.max_steps is not None and self.min_steps > self.max_steps:
            raise ValueError(f"min_steps is {self.min_steps} and max_steps is {self.max_steps}; it needs min <= max")
        return self


def _stopping(value: object) -> object:
    return {"rule": value} if isinstance(value, str) else value


def _job(value: Json) -> Json:
    for name in _OWN_FIELDS:
        if name in value:
            raise ValueError(f"{name} is set by the sweep; drop it here")
    if value.get("gang") is False:
        raise ValueError("gang: a trial is one job; drop `gang: false`")
    if len(json.dumps(value, default=str)) > 1 << 20:
        raise ValueError("it is longer than a mebibyte")
    try:
        job_file(value, "job")
    except RotaError as error:
        raise ValueError(str(error).removeprefix("job: ")) from None
    return value


class _JobForm:
    """Describes a job to editors with the fields of a job file."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema of a job file."""
        return handler(JobFile.__pydantic_core_schema__)


JobPart = Annotated[dict[str, Any], AfterValidator(_job), _JobForm()]


class SweepFile(FileModel):
    """The whole file."""

    name: Name | None = None
    tenant: Name = "default"
    parameters: Parameters
    job: JobPart
    objective: ObjectivePart = ObjectivePart()
    sampler: Literal["random", "grid", "tpe"] = "random"
    early_stop: Annotated[StoppingPart, BeforeValidator(_stopping, json_schema_input_type=StoppingPart | str)] = (
        StoppingPart()
    )
    trials: Annotated[int, Field(strict=True, ge=1, le=MOST_TRIALS)] = 1
    parallel: Annotated[int, Field(strict=True, ge=1, le=MOST_PARALLEL)] = USUAL_PARALLEL
    seed: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)] = 0
    max_failures: Annotated[int, Field(strict=True, ge=1, le=MOST_TRIALS)] = 10
    """Failed trials after which the sweep ends."""

    @model_validator(mode="after")
    def _agree(self) -> SweepFile:
        if self.sampler == "grid":
            size = self._grid_size()
            if "trials" in self.model_fields_set and self.trials != size:
                raise ValueError(f"trials is {self.trials} and the grid has {size} points; drop trials")
            if size > MOST_TRIALS:
                raise ValueError(f"the grid has {size} points; the maximum is {MOST_TRIALS}")
            object.__setattr__(self, "trials", size)
        elif "trials" not in self.model_fields_set:
            raise ValueError(f"trials is missing; sampler {self.sampler!r} needs the number of trials")
        if self.sampler == "tpe" and self.trials * len(self.parameters) > MOST_LEARNT:
            raise ValueError(
                f"sampler 'tpe' learns from at most {MOST_LEARNT} values, and {self.trials} trials of "
                f"{len(self.parameters)} parameters have more; use random"
            )
        if (longest := sum(longest_text(part) for part in self.parameters.values())) > MOST_TEXT:
            raise ValueError(f"parameters: a trial may have {longest} characters of values; at most {MOST_TEXT}")
        folded = [name.upper() for name in self.parameters]
        if len(set(folded)) < len(folded):
            raise ValueError("parameters: two names differ in upper and lower case only; rename one")
        return self

    def _grid_size(self) -> int:
        size = 1
        for name, part in self.parameters.items():
            try:
                size *= len(part.grid())
            except ValueError as error:
                raise ValueError(f"parameters.{name}: {error}") from None
        return size

    @property
    def stopping(self) -> StoppingPart:
        """The rule of early stopping."""
        return self.early_stop

    @property
    def pauses(self) -> bool:
        """Whether trials can be paused: their jobs save checkpoints from which they resume."""
        return self.job.get("checkpoint") is not None

    def loss_of(self, value: float | None) -> float | None:
        """A value of the metric as a loss, which is to be minimised."""
        if value is None:
            return None
        loss = value if self.objective.goal == "minimize" else -value
        return math.inf if math.isnan(loss) else loss

    def shown(self, loss: float) -> float | None:
        """A loss as a value of the metric; None if there is none."""
        if not math.isfinite(loss):
            return None
        return loss if self.objective.goal == "minimize" else -loss

    def trial_job(
        self,
        sweep_id: str,
        name: str,
        number: int,
        params: Params,
        marks: tuple[int, ...],
        rungs: tuple[int, ...] = (),
    ) -> Json:
        """The job file of a trial: the sweep's, with the parameters as variables, and the steps that it has to know."""
        own: Json = {
            "ROTA_SWEEP": sweep_id,
            "ROTA_TRIAL": str(number),
            "ROTA_PARAMS": json.dumps(params),
            "ROTA_MARKS": ",".join(str(mark) for mark in marks),
            **{f"ROTA_PARAM_{key.upper()}": _text(value) for key, value in params.items()},
        }
        if rungs:
            own["ROTA_RUNGS"] = ",".join(str(rung) for rung in rungs)
            if self.objective.log is not None:
                own["ROTA_RUNG_PATTERN"] = self.objective.log
        return {
            **self.job,
            "name": f"{name[:110]}-{number}",
            "tenant": self.tenant,
            "env": {**(self.job.get("env") or {}), **own},
        }


def _text(value: object) -> str:
    """A parameter as the value of a variable: texts as they are, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def is_sweep_file(document: object) -> bool:
    """Whether the values of a file are a sweep."""
    return isinstance(document, dict) and "parameters" in document and "job" in document


def sweep_file(values: object, source: Path | str = "sweep") -> SweepFile:
    """Validate plain values as a sweep, with its rule; an error names the field."""
    from rota.sweeps.rules import rule_of

    made = checked(SweepFile, values, Path(source))
    try:
        rule_of(made)
    except RotaError as error:
        raise RotaError(f"{source}: {error}") from error
    return made


def read_sweep_file(path: Path) -> Json:
    """The plain values of a sweep file, checked."""
    document = read_document(path)
    if not isinstance(document, dict):
        raise RotaError(f"{path}: not a sweep file; it needs parameters and a job")
    if not is_sweep_file(document) and {"run", "roles"} & document.keys():
        raise RotaError(
            f"{path} is a job file; submit it with `rota submit {path}`, or make it the job of a sweep file"
        )
    from rota.sweeps.rules import refuse_many_marks

    try:
        refuse_many_marks(sweep_file(document, path))
    except RotaError as error:
        raise RotaError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from error
    return document
