"""Why a job waits under tenancy `quota`: a user's limit, a tenant's limit, a share that is used or lent."""

from __future__ import annotations

from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import OPPORTUNISTIC, WHOLE, Job
from rota.core.model.tenants import ANY_TYPE
from rota.core.state.job_record import LiveJob
from rota.tenancy.quota.ledger import QuotaLedger


def user_limit_reason(ledger: QuotaLedger, live: LiveJob) -> Reason | None:
    """The limit of one user of a tenant that a job would exceed now, if there is one."""
    job = live.job
    if not job.user or live.demoted:
        return None
    for name, account in ledger.accounts.line(job.tenant):
        most = account.share.per_user
        if most is None:
            continue
        left = most * WHOLE - ledger.held_by_user.get((name, job.user), 0)
        if job.gpu_milli > left:
            return Reason(
                code=ReasonCode.USER_LIMIT,
                need_milli=job.gpu_milli,
                free_milli=left,
                owned_milli=most * WHOLE,
                tenant=name,
            )
    return None


def limit_reason(ledger: QuotaLedger, job: Job) -> Reason:
    """The obstacle of a job for which every type that it accepts is used up to a limit."""
    most = room = 0
    for kind in ledger.kinds(job):
        tops, rooms = [], []
        for _, account in ledger.accounts.line(job.tenant):
            for name in (kind, ANY_TYPE):
                if name in account.share.limit:
                    tops.append(account.share.limit[name] * WHOLE)
                    rooms.append(tops[-1] - account.held.get(name, 0))
        most, room = max(most, min(tops, default=0)), max(room, min(rooms, default=0))
    code = ReasonCode.QUOTA_USED if most >= job.gpu_milli else ReasonCode.QUOTA_TOO_SMALL
    return Reason(code=code, need_milli=job.gpu_milli, free_milli=room, owned_milli=most, tenant=job.tenant)


def lent_reason(ledger: QuotaLedger, live: LiveJob, now_s: float) -> Reason | None:
    """The borrower whose minimum run time ends first, where the job's share is lent to such borrowers."""
    own = ledger.own_share(live)
    if own is None or own.lacks_milli > 0:
        return None
    protected = [entry for entry in ledger.protected(own.kind, now_s) if not ledger.is_within(entry[1], own.owner)]
    if not protected:
        return None
    at_s, borrower = min(protected, key=lambda entry: (entry[0], entry[1].seq))
    need = live.job.gpu_milli
    return Reason(code=ReasonCode.SHARE_LENT, need_milli=need, tenant=own.owner, job=borrower.job.id, until_s=at_s)


def used_reason(ledger: QuotaLedger, live: LiveJob) -> Reason | None:
    """How much of its tenant's share, or of one above it, is left, where that is too little for the job."""
    if live.standing == OPPORTUNISTIC:
        return None
    need = live.job.gpu_milli
    shares = [
        (account.owned[key] * WHOLE, account.owned[key] * WHOLE - account.held.get(key, 0), name)
        for kind in ledger.kinds(live.job)
        for name, account in ledger.accounts.line(live.job.tenant)
        for key in (kind, ANY_TYPE)
        if key in account.owned
    ]
    large = [share for share in shares if share[0] >= need]
    nothing = (0, 0, live.job.tenant)
    owned, left, owner = max(large or shares, key=lambda share: (share[1], share[0]), default=nothing)
    free = max(left, 0)
    reason = Reason(code=ReasonCode.SHARE_USED, need_milli=need, free_milli=free, owned_milli=owned, tenant=owner)
    return reason if free < need else None
