"""How Rota marks the jobs that it schedules: in their administrator's comment, which users can't write."""

from __future__ import annotations

from collections.abc import Mapping

from rota.drivers.slurm.printed.records import SUCCEEDED, SlurmJob

HELD = "rota"
"""Held at submission by `job_submit.lua`."""
HELD_BY_USER = "rota:user"
"""Held at submission by its user (`sbatch --hold`); once released, it is Rota's."""
PLACED = "rota:placed"
"""Released by Rota on the nodes of its NodeList."""
PREEMPTED = "rota:preempted"
"""Requeued and held by Rota."""
LEFT = "rota:left"
"""Left to Slurm: Rota does not understand its request, or the watchdog released it."""
REQUEUE_DELAY_S = 125.0
"""Slurm sets the begin time of a requeued job two minutes after the requeue, which is its time of submission then."""
MANAGED = frozenset({HELD, HELD_BY_USER, PLACED, PREEMPTED})


def is_managed(job: SlurmJob) -> bool:
    """Whether Rota decides when a job runs."""
    return job.admin_comment in MANAGED


def is_held(job: SlurmJob) -> bool:
    """Whether a waiting job is held, whatever the cause."""
    return job.is_pending and job.priority == 0


def is_held_by_others(job: SlurmJob) -> bool:
    """Whether a waiting job is held by its user or an administrator, and not by Rota."""
    if not is_held(job):
        return False
    return not is_managed(job) or (job.admin_comment == HELD_BY_USER and job.reason == "JobHeldUser")


def waits_for_slurm(job: SlurmJob, jobs: Mapping[str, SlurmJob], now_s: float) -> bool:
    """Whether something that Slurm judges keeps a waiting job: a dependency, its begin time or its reservation's."""
    if job.dependency:
        return not _is_met(job.dependency, jobs)
    if is_managed(job) and job.restarts and job.eligible_s <= job.submit_s + REQUEUE_DELAY_S:
        return False
    if job.reason in ("Dependency", "DependencyNeverSatisfied", "BeginTime", "Reservation"):
        return True
    return job.eligible_s > now_s


def _is_met(dependency: str, jobs: Mapping[str, SlurmJob]) -> bool:
    """Whether all parts of a dependency are met, or one of several with `?`; Slurm judges held jobs late itself."""
    if "?" in dependency:
        return any(_is_part_met(part, jobs) for part in dependency.split("?"))
    return all(_is_part_met(part, jobs) for part in dependency.split(","))


def _is_part_met(part: str, jobs: Mapping[str, SlurmJob]) -> bool:
    """Whether `afterok:17(unfulfilled)` is met by what is known of job 17; other forms are for Slurm to judge."""
    kind, _, rest = part.partition(":")
    name = rest.partition("(")[0]
    found = jobs.get(name)
    if found is None or not found.has_ended:
        return False
    succeeded = found.state in SUCCEEDED
    return kind == "afterany" or (kind == "afterok" and succeeded) or (kind == "afternotok" and not succeeded)
