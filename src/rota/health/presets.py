"""Published failure rates by name, and the parameters that change them: `rsc-1:repair_s=3600,spares=4`.

Each rate is failures per 1000 days of a node with eight GPUs. Sources: Kokolis et al. 2024 (RSC-1, RSC-2), Grattafiori
et al. 2024 (Llama 3: counts in 54 days on 2,048 nodes), Jeon et al. 2019 (Philly: trials by class). Times to repair
and to detect are not published with them; those here are assumptions, and parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rota.core.errors import RotaError, did_you_mean
from rota.health.failure_model import UNKNOWN_CAUSE, CauseRate, FailureModel, JobFaultClass

LLAMA_3_DAYS = 54
LLAMA_3_NODES = 2048
LLAMA_3_STOPS: Mapping[str, int] = {
    "gpu": 148,
    "hbm3": 72,
    "software": 54,
    "switch-or-cable": 35,
    "host-maintenance": 32,
    "sram": 19,
    "system-processor": 17,
    "nic": 7,
    "nccl-watchdog": 7,
    "silent-corruption": 6,
    "thermal": 6,
    "ssd": 3,
    "power-supply": 3,
    "other": 10,
}
"""Unplanned stops of the training of Llama 3 405B by cause; `other` are five causes with 2 stops each."""

RSC_1_RATE = 6.50
RSC_2_RATE = 2.34
RSC_1_MEASURED_RATE = 24_000 / (7.9 * 128)
"""The rate that the measured time to failure of RSC-1's jobs on 1,024 GPUs, 7.9 h, amounts to: 3.65 times the other."""

_P95_OVER_MEAN = 2.9957
"""Of an exponential distribution."""
_MPI_RUNTIME_P95_MIN = 18_091.0
_PHILLY: tuple[tuple[str, int, float, bool], ...] = (
    ("incorrect-inputs", 9690, 0.0, True),
    ("cpu-out-of-memory", 12_076, 0.0, True),
    ("semantic-error", 2943, 9.2, True),
    ("core-dump", 2912, 3.4, True),
    ("invalid-memory-access", 2602, 3.8, True),
    ("checkpoint-error", 1995, 21.7, False),
    ("cuda-failure", 1484, 0.6, False),
    ("syntax-error", 1132, 0.2, True),
    ("traceback", 777, 2.3, True),
    ("mpi-error", 634, 3.7, False),
    ("gpu-out-of-memory", 487, 1.1, True),
    ("mpi-runtime-failure", 478, 14.6, False),
    ("permission-error", 299, 0.0, True),
    ("import-error", 148, 0.0, True),
    ("preempted", 147, 1.7, False),
    ("cuda-init-failed", 141, 0.0, False),
    ("model-diverged", 84, 0.0, True),
    ("gpu-ecc-error", 10, 0.0, False),
)
"""Class, trials, percent of the run time until failure (0 where it is not known), whether every attempt fails."""
_UNKNOWN_SHARE = 1.0
"""Percent of the run time for classes without a published figure."""
PHILLY_JOB_FAILURES = 1 / 3


def _philly_classes() -> tuple[JobFaultClass, ...]:
    """The classes with mean times to failure, scaled to the published p95 of the MPI runtime's failures."""
    percent_s = _MPI_RUNTIME_P95_MIN * 60.0 / _P95_OVER_MEAN * 478 / 14.6
    return tuple(
        JobFaultClass(
            name=name, weight=float(trials), mean_s=percent_s * (share or _UNKNOWN_SHARE) / trials, repeats=repeats
        )
        for name, trials, share, repeats in _PHILLY
    )


def _llama_3() -> tuple[CauseRate, ...]:
    per_1000 = 1000.0 / (LLAMA_3_DAYS * LLAMA_3_NODES)
    return tuple(CauseRate(name=name, per_1000_node_days=count * per_1000) for name, count in LLAMA_3_STOPS.items())


def _one_cause(rate: float) -> tuple[CauseRate, ...]:
    return (CauseRate(name=UNKNOWN_CAUSE, per_1000_node_days=rate),)


PRESETS: Mapping[str, FailureModel] = {
    model.name: model
    for model in (
        FailureModel(name="rsc-1", causes=_one_cause(RSC_1_RATE), detect_s=60.0),
        FailureModel(name="rsc-1-measured", causes=_one_cause(RSC_1_MEASURED_RATE), detect_s=60.0),
        FailureModel(name="rsc-2", causes=_one_cause(RSC_2_RATE), detect_s=60.0),
        FailureModel(name="llama-3", causes=_llama_3(), detect_s=60.0),
        FailureModel(name="philly", job_classes=_philly_classes(), job_failures=PHILLY_JOB_FAILURES),
        FailureModel(name="custom", causes=_one_cause(1.0)),
    )
}
"""Every preset by its name; `custom` has the rate that is given."""


@dataclass(frozen=True, slots=True)
class FailureParams:
    """What may follow a preset's name; None keeps the preset's value. `rate` is per 1000 node-days, in all."""

    rate: float | None = None
    shape: float | None = None
    wear: float | None = None
    infant: float | None = None
    infant_s: float | None = None
    rack: float | None = None
    lemons: float | None = None
    lemon_factor: float | None = None
    repair_s: float | None = None
    detect_s: float | None = None
    proven_s: float | None = None
    spares: int | None = None
    adaptive: bool | None = None
    job_failures: float | None = None
    tries: int | None = None


def preset(name: str) -> FailureModel:
    """The failures of that name; an unknown name is refused with the nearest."""
    if name not in PRESETS:
        raise RotaError(f"unknown failures {name!r}; {did_you_mean(name, PRESETS)}")
    return PRESETS[name]


def with_params(model: FailureModel, params: FailureParams) -> FailureModel:
    """The model with other parameters; another rate is divided among the causes as before."""
    given = {name: value for name in FailureParams.__slots__ if (value := getattr(params, name)) is not None}
    rate = given.pop("rate", None)
    if rate is not None:
        if not model.causes:
            raise RotaError(f"failures {model.name!r} are of jobs and have no rate of nodes; leave rate out")
        factor = rate / model.per_1000_node_days
        given["causes"] = tuple(
            CauseRate(name=cause.name, per_1000_node_days=cause.per_1000_node_days * factor) for cause in model.causes
        )
    if "job_failures" in given and not model.job_classes:
        given["job_classes"] = PRESETS["philly"].job_classes
    return replace(model, **given)
