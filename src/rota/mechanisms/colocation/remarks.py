"""Why no jobs will share devices in a simulation, for users of policies that let them."""

from __future__ import annotations

from collections.abc import Iterator

from rota.core.model.job import OPPORTUNISTIC
from rota.mechanisms.hooks import SimulationInput

_HOW_BUSY = "Measured pairs (--profiles), the label utilization or unknown=FRACTION say how busy they are"


def lacks_opportunistic(given: SimulationInput) -> Iterator[str]:
    """Yield a remark if no job may be packed with a guaranteed one."""
    if not any(job.priority == OPPORTUNISTIC for job in given.jobs):
        yield (
            "no job is opportunistic (priority -1), so that none is packed with a job that has whole devices. "
            "With patience_s=SECONDS, jobs that have waited for that long are"
        )


def lacks_idle_hosts(given: SimulationInput, busy: float, unknown: float) -> Iterator[str]:
    """Yield a remark if no guaranteed job leaves its devices idle enough to be packed with another."""
    guaranteed = [job for job in given.jobs if job.priority > OPPORTUNISTIC and not job.roles[0].is_fraction]
    if not any(given.speed.use(job, kind, unknown) < busy for job in guaranteed for kind in given.device_types):
        yield (
            f"no guaranteed job is known to keep its devices busy for less than {busy:g} of the time, so that none is "
            f"packed with another. {_HOW_BUSY}"
        )


def lacks_pairs(given: SimulationInput, limit: float, unknown: float) -> Iterator[str]:
    """Yield a remark if no two jobs fit on one device by how busy they keep it; measured pairs make predictions."""
    least = [
        min((given.speed.use(job, kind, unknown) for kind in given.device_types), default=1.0) for job in given.jobs
    ]
    if not given.speed.knows_pairs and sum(sorted(least)[:2]) > limit:
        yield (
            f"no two jobs are known to keep a device busy for at most {limit:g} together, so that none share one. "
            f"{_HOW_BUSY}"
        )


def lacks_fractions(given: SimulationInput) -> Iterator[str]:
    """Yield a remark if no job asks for a fraction of a device."""
    if not any(role.is_fraction for job in given.jobs for role in job.roles):
        yield "no job asks for a fraction of a device (gpus below 1), so that none share one"
