"""How long and how large the jobs of a tenant may be, as an admin sets it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from rota.core.errors import RotaError
from rota.core.model.job import WHOLE, Job


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantLimits:
    """The longest time limit, and the most devices of one job; None is no limit."""

    max_time_s: float | None = None
    max_gpus_per_job: float | None = None

    def __post_init__(self) -> None:
        if self.max_time_s is not None and not 0 < self.max_time_s < math.inf:
            raise RotaError(f"max_time_s is {self.max_time_s:g}; it must be a time above 0, or none for no limit")
        if self.max_gpus_per_job is not None and not 0 <= self.max_gpus_per_job < math.inf:
            raise RotaError(f"max_gpus_per_job is {self.max_gpus_per_job:g}; it must be 0 or more, or none")

    @property
    def is_empty(self) -> bool:
        """Whether nothing is limited."""
        return self.max_time_s is None and self.max_gpus_per_job is None

    def changed(self, changes: Mapping[str, float | None]) -> TenantLimits:
        """Return the limits with some of them changed or, with None, removed."""
        return replace(self, **changes)

    def admitted(self, job: Job) -> Job:
        """Return a job that is within the limits, with the tenant's time limit if it has none; refuse any other."""
        gpus = job.gpus
        if job.elastic is not None:
            gpus = max(gpus, job.elastic.max_tasks * job.roles[0].device_milli / WHOLE)
        if self.max_gpus_per_job is not None and gpus > self.max_gpus_per_job:
            size = "up to " if gpus > job.gpus else ""
            raise RotaError(
                f"gpus: it asks for {size}{gpus:g}; a job of tenant {job.tenant!r} may have {self.max_gpus_per_job:g}; "
                "ask for fewer, or an admin for more"
            )
        if self.max_time_s is None:
            return job
        if job.time_limit_s is None:
            return replace(job, time_limit_s=self.max_time_s)
        if job.time_limit_s > self.max_time_s:
            raise RotaError(
                f"time_limit is {job.time_limit_s:g} s; the most in tenant {job.tenant!r} is {self.max_time_s:g} s; "
                "lower it, or ask an admin"
            )
        return job

    def encode(self) -> dict[str, Any]:
        """The limits as JSON values."""
        return asdict(self)

    def words(self) -> str:
        """The limits in words, for the audit log."""
        time = "none" if self.max_time_s is None else f"{self.max_time_s:g} s"
        gpus = "none" if self.max_gpus_per_job is None else f"{self.max_gpus_per_job:g}"
        return f"max_time {time}, max_gpus_per_job {gpus}"
