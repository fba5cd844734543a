"""What failures cost: device time by cause and kind, the effective training time ratio (ETTR), and goodput."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

HOUR_S = 3600.0


@dataclass(slots=True, kw_only=True)
class CauseLoss:
    """What one cause cost, in device-seconds."""

    breakdowns: int = 0
    interruptions: int = 0
    """Runs of jobs that it ended."""
    work_s: float = 0.0
    """Work since the last checkpoint, which is done again."""
    undetected_s: float = 0.0
    """Held by jobs that stood still until the failure was noticed."""
    restart_s: float = 0.0
    """Starting again."""
    repair_s: float = 0.0
    """Devices of nodes in repair; no job held them."""

    @property
    def of_jobs_s(self) -> float:
        """Device-seconds that jobs held in vain."""
        return self.work_s + self.undetected_s + self.restart_s

    def encode(self) -> dict[str, Any]:
        """The loss in device-hours, by name."""
        return {
            "breakdowns": self.breakdowns,
            "interruptions": self.interruptions,
            "lost_work_device_h": self.work_s / HOUR_S,
            "undetected_device_h": self.undetected_s / HOUR_S,
            "restart_device_h": self.restart_s / HOUR_S,
            "repair_device_h": self.repair_s / HOUR_S,
        }


@dataclass(slots=True, kw_only=True)
class JobLosses:
    """What failures and checkpoints cost one job, in seconds of its running time."""

    failures: int = 0
    work_s: float = 0.0
    undetected_s: float = 0.0
    restart_s: float = 0.0
    waited_s: float = 0.0
    """In the queue, after interruptions."""
    write_part: float = 0.0
    """The fraction of its running time that checkpoints take."""
    cause: str = ""
    """The cause of its last interruption, until it has started again."""
    since_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTime:
    """How a job spent its time, in seconds: from its first start to its end, held devices, and got on."""

    gpus: float
    span_s: float
    run_s: float
    productive_s: float
    checkpoint_s: float
    failures: int

    @property
    def ettr(self) -> float | None:
        """The productive part of the time from its first start to its end."""
        return self.productive_s / self.span_s if self.span_s > 0 else None


def job_time(*, gpus: float, span_s: float, run_s: float, losses: JobLosses) -> JobTime:
    """The time of a job that ran for `run_s` in all, restarts and what failures undid included."""
    worked_s = max(run_s - losses.work_s - losses.undetected_s - losses.restart_s, 0.0)
    checkpoint_s = worked_s * losses.write_part
    return JobTime(
        gpus=gpus,
        span_s=span_s,
        run_s=run_s,
        productive_s=worked_s - checkpoint_s,
        checkpoint_s=checkpoint_s,
        failures=losses.failures,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSizeClass:
    """Jobs of up to so many devices: how many, their interruptions, mean time to failure, and ETTR."""

    up_to_gpus: int
    jobs: int
    failures: int
    mttf_s: float | None
    ettr: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureReport:
    """The result of a run with failures."""

    model: str
    causes: Mapping[str, CauseLoss]
    ettr: float | None
    """Productive over elapsed device time of jobs, from their first start to their end."""
    goodput: float | None
    """Productive device time over all device time of the cluster until the last end."""
    checkpoint_device_s: float
    sizes: tuple[JobSizeClass, ...] = field(default=())

    @property
    def interruptions(self) -> int:
        """Runs of jobs that failures ended."""
        return sum(loss.interruptions for loss in self.causes.values())

    @property
    def lost_device_h(self) -> float:
        """Device-hours that jobs held in vain, of all causes; checkpoints and repairs are not in it."""
        return sum(loss.of_jobs_s for loss in self.causes.values()) / HOUR_S

    def encode(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {
            "model": self.model,
            "ettr": self.ettr,
            "goodput": self.goodput,
            "interruptions": self.interruptions,
            "lost_device_h": self.lost_device_h,
            "checkpoint_device_h": self.checkpoint_device_s / HOUR_S,
            "causes": {name: loss.encode() for name, loss in self.causes.items()},
            "sizes": [
                {
                    "up_to_gpus": size.up_to_gpus,
                    "jobs": size.jobs,
                    "failures": size.failures,
                    "mttf_h": None if size.mttf_s is None else size.mttf_s / HOUR_S,
                    "ettr": size.ettr,
                }
                for size in self.sizes
            ],
        }


def failure_report(
    model: str, causes: Mapping[str, CauseLoss], times: Iterable[JobTime], capacity_device_s: float
) -> FailureReport:
    """Sum up the times of all jobs."""
    times = list(times)
    productive_s = sum(each.gpus * each.productive_s for each in times)
    elapsed_s = sum(each.gpus * each.span_s for each in times)
    return FailureReport(
        model=model,
        causes=dict(sorted(causes.items(), key=lambda item: (-item[1].of_jobs_s, item[0]))),
        ettr=productive_s / elapsed_s if elapsed_s > 0 else None,
        goodput=productive_s / capacity_device_s if capacity_device_s > 0 else None,
        checkpoint_device_s=sum(each.gpus * each.checkpoint_s for each in times),
        sizes=_sizes(times),
    )


def _sizes(times: list[JobTime]) -> tuple[JobSizeClass, ...]:
    """Jobs by size: classes of powers of two."""
    by_size: dict[int, list[JobTime]] = {}
    for each in times:
        bound = 1
        while bound < each.gpus:
            bound *= 2
        by_size.setdefault(bound, []).append(each)
    found = []
    for bound, jobs in sorted(by_size.items()):
        failures = sum(each.failures for each in jobs)
        span_s = sum(each.span_s for each in jobs)
        found.append(
            JobSizeClass(
                up_to_gpus=bound,
                jobs=len(jobs),
                failures=failures,
                mttf_s=sum(each.run_s for each in jobs) / failures if failures else None,
                ettr=sum(each.productive_s for each in jobs) / span_s if span_s > 0 else None,
            )
        )
    return tuple(found)
