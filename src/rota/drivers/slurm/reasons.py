"""Slurm's reasons why a job waits, in plain words. The codes are those of `man squeue`, JOB REASON CODES."""

from __future__ import annotations

_LIMITS = {
    "Assoc": "its account, or its user in that account",
    "QOS": "its quality of service (QOS)",
}
_TRES = {
    "CPU": "CPUs",
    "Mem": "memory",
    "Node": "nodes",
    "GRES": "generic resources such as GPUs",
    "Billing": "billing units",
    "BB": "burst buffer",
    "Energy": "energy",
    "License": "licences",
    "Unknown": "a resource",
    "": "a resource",
}
_BY_LENGTH = sorted(_TRES, key=len, reverse=True)
PLAIN: dict[str, str] = {
    "None": "not yet considered by Slurm's scheduler",
    "Priority": "jobs with a higher priority in its partition come first",
    "Resources": "it is next in line, and waits until enough nodes, CPUs, memory or GPUs are free",
    "Dependency": "it waits for another job that it depends on",
    "DependencyNeverSatisfied": "the job that it depends on ended otherwise than required: it will never start",
    "BeginTime": "its begin time has not come",
    "JobHeldUser": "its user holds it; `scontrol release` lets it run",
    "JobHeldAdmin": "an administrator, or Rota, holds it until it is its turn",
    "JobHoldMaxRequeue": "it was requeued too often, and is held",
    "JobLaunchFailure": "it could not be launched",
    "JobArrayTaskLimit": "as many tasks of its array run as the array allows at once",
    "Licenses": "it waits for a licence",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition takes no jobs to run at present",
    "PartitionNodeLimit": "it asks for more, or fewer, nodes than its partition allows",
    "PartitionTimeLimit": "its time limit is longer than its partition allows",
    "PartitionConfig": "its partition's settings do not allow it",
    "AccountNotAllowed": "its account may not use its partition",
    "QOSNotAllowed": "its QOS may not be used by its account or in its partition",
    "Reservation": "its reservation has not begun",
    "ReservationDeleted": "its reservation was deleted",
    "InvalidAccount": "its account is not valid",
    "InvalidQOS": "its QOS is not valid",
    "QOSUsageThreshold": "the usage of its account is above what its QOS allows",
    "AssociationJobLimit": "its account runs as many jobs as it may",
    "AssociationResourceLimit": "its account uses as much as it may",
    "AssociationTimeLimit": "its account has used up its time",
    "QOSJobLimit": "its QOS runs as many jobs as it may",
    "QOSResourceLimit": "its QOS uses as much as it may",
    "QOSTimeLimit": "its QOS has used up its time",
    "ReqNodeNotAvail": "a node that it requires is down, drained or reserved",
    "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions": (
        "nodes that it needs are down, drained or reserved"
    ),
    "BadConstraints": "no node can ever meet its constraints",
    "NodeDown": "a node that it requires is down",
    "FrontEndDown": "no front-end node is available",
    "Cleaning": "it was requeued and its last run is still being cleaned up",
    "Prolog": "its prolog runs",
    "BurstBufferOperation": "an operation on its burst buffer failed",
    "BurstBufferResources": "it waits for burst buffer",
    "BurstBufferStageIn": "its burst buffer is being filled",
    "DeadLine": "it can't end before its deadline",
    "FedJobLock": "the clusters of its federation decide which of them starts it",
    "MaxBBPerAssoc": "its account uses as much burst buffer as it may",
    "OutOfMemory": "it ran out of memory",
    "PowerNotAvail": "there is not enough power for it",
    "PowerReserved": "the power that it needs is reserved",
    "JobHeldFed": "its federation holds it",
    "NonZeroExitCode": "it ended with an exit code other than 0",
    "RaisedSignal": "it was ended by a signal",
    "TimeLimit": "it reached its time limit",
    "InactiveLimit": "it was inactive for too long",
    "SystemFailure": "Slurm, the file system or the network failed",
    "AccountingPolicy": "a limit of accounting keeps it",
    "FairShare": "the fair share of its account is used up",
    "SchedDefer": "its partition's scheduling is deferred",
    "BootFail": "a node of it could not be booted",
    "RaisedSignal(9)": "it was killed",
    "Accounting": "a limit of accounting keeps it",
    "ArrayTaskLimit": "as many tasks of its array run as the array allows at once",
    "MaxMemPerLimit": "it asks for more memory than its partition allows",
    "MaxRequeue": "it was requeued too often",
    "Resv": "its reservation has not begun",
}
_LIMIT_ENDS = {
    "GrpJobsLimit": "runs as many jobs as it may",
    "GrpSubmitJobsLimit": "has submitted as many jobs as it may",
    "GrpWallLimit": "has used up its wall time",
    "MaxJobsLimit": "runs as many jobs for this user as it may",
    "MaxSubmitJobLimit": "has submitted as many jobs for this user as it may",
    "MaxWallDurationPerJobLimit": "allows a shorter time limit only",
    "MaxJobsPerUserLimit": "runs as many jobs of this user as it may",
    "MaxJobsPerAccountLimit": "runs as many jobs of this account as it may",
    "MaxSubmitJobPerUserLimit": "has as many jobs of this user as it may",
    "MaxSubmitJobPerAccountLimit": "has as many jobs of this account as it may",
    "JobLimit": "runs as many jobs as it may",
    "ResourceLimit": "uses as much as it may",
    "TimeLimit": "has used up its time",
    "UsageThreshold": "is above its usage threshold",
}


def plain_words(code: str) -> str:
    """Return a reason in plain words; an unknown code stands for itself."""
    code = code.strip()
    if code in PLAIN:
        return PLAIN[code]
    if code.startswith("ReqNodeNotAvail"):
        return PLAIN["ReqNodeNotAvail"]
    for start, whose in _LIMITS.items():
        if code.startswith(start):
            found = _limit(code[len(start) :])
            if found:
                return f"{whose} {found}"
    if code.startswith("MaxBBPer"):
        return "as much burst buffer is in use as may be"
    return f"Slurm says {code}" if code else PLAIN["None"]


def _limit(rest: str) -> str | None:
    """What a limit of an account or a QOS says: `GrpCpuLimit`, `MaxGRESPerJob`, `GrpMemRunMinutes`."""
    if rest in _LIMIT_ENDS:
        return _LIMIT_ENDS[rest]
    for start, verb in (("Grp", "uses as much {} as it may"), ("Max", "allows less {} for one {}"), ("Min", "")):
        if not rest.startswith(start):
            continue
        body = rest[len(start) :]
        named = next(name for name in _BY_LENGTH if body.lower().startswith(name.lower()))
        what, tail = _TRES[named], body[len(named) :]
        if start == "Min":
            return f"asks for more {what} than the job does"
        if "Minutes" in tail:
            return (
                f"has used up its time with {what}" if start == "Grp" else f"allows less time with {what} for one job"
            )
        scope = next((each for each in ("Node", "User", "Account") if f"Per{each}" in tail), "Job").lower()
        return verb.format(what, scope)
    return None
