"""Routes for alerts: users see those about their tenants, admins silence and acknowledge them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from rota.api.access import AccessRole, Principal
from rota.api.service import Service, principal, service
from rota.api.wire import PROBLEMS, moment
from rota.core.errors import RotaError, did_you_mean
from rota.files.alerts.expression import parse_matchers
from rota.live.alerts.keeper import AlertKeeper, shown_value, text_of
from rota.live.alerts.states import Alert, AlertSilence
from rota.live.intake.requests import NotFound

router = APIRouter(tags=["alerts"], responses=PROBLEMS)
Caller = Annotated[Principal, Depends(principal)]
Json = dict[str, Any]
AlertPath = Annotated[str, Path(max_length=64, description="The alert's id.")]
SilencePath = Annotated[str, Path(max_length=64, description="The silence's id.")]
MOST_S = 366 * 86400.0


class AlertOut(BaseModel):
    """An alert: what a rule found for one set of labels."""

    id: str
    rule: str
    severity: str = Field(description="info, warning or critical.")
    state: str = Field(description="pending (it must hold for longer), firing or resolved.")
    labels: dict[str, str]
    value: float
    shown: str = Field(description="The value as people read it.")
    text: str
    since: str | None = Field(description="From when on its condition held.")
    fired: str | None
    ended: str | None
    acknowledged_by: str
    silenced: bool


class AlertRuleOut(BaseModel):
    """A rule that holds."""

    name: str
    when: str | None
    event: str | None
    for_s: float
    count: int
    within_s: float
    severity: str
    message: str
    to: list[str]


class SilenceOut(BaseModel):
    """A time in which some alerts are not told."""

    id: str
    rule: str
    labels: str
    until: str | None
    by: str
    why: str


class SilenceIn(BaseModel):
    """Which alerts are not told, and for how long."""

    model_config = ConfigDict(extra="forbid")

    rule: Annotated[str, Field(max_length=128)] = ""
    labels: Annotated[str, Field(max_length=500, description='As in rules: `tenant="nlp",node=~"a.*"`.')] = ""
    for_s: Annotated[float, Field(gt=0, le=MOST_S, allow_inf_nan=False)]
    why: Annotated[str, Field(max_length=500)] = ""


def keeper_of(parts: Service) -> AlertKeeper:
    """Return what keeps the alerts; raises `NotFound` where there are none."""
    if parts.alerts is None:
        raise NotFound("alerts are kept by a manager of processes; for Kubernetes there are Prometheus rules")
    return parts.alerts


def may_see(caller: Principal, alert: Alert) -> bool:
    """Whether a caller may see an alert: an admin all of them, others those about their tenants."""
    tenant = dict(alert.labels).get("tenant")
    return caller.role is AccessRole.ADMIN or (tenant is not None and caller.may_see(tenant))


def alert_out(keeper: AlertKeeper, alert: Alert) -> Json:
    """Return an alert as JSON."""
    rule = keeper.rules.get(alert.rule)
    return {
        "id": alert.id,
        "rule": alert.rule,
        "severity": alert.severity,
        "state": alert.state.value,
        "labels": dict(alert.labels),
        "value": alert.value,
        "shown": f"{alert.value:g}" if rule is None else shown_value(rule, alert.value),
        "text": alert.text or ("" if rule is None else text_of(rule, alert)),
        "since": moment(alert.since_s),
        "fired": moment(alert.fired_s),
        "ended": moment(alert.ended_s),
        "acknowledged_by": alert.acknowledged_by,
        "silenced": keeper.is_silenced(alert),
    }


def silence_out(silence: AlertSilence) -> Json:
    """Return a silence as JSON."""
    labels = ",".join(f'{each.label}{each.sign}"{each.text}"' for each in silence.matchers)
    about = {"id": silence.id, "rule": silence.rule, "labels": labels}
    return {**about, "until": moment(silence.until_s), "by": silence.by, "why": silence.why}


@router.get("/alerts", response_model=list[AlertOut])
async def listed(request: Request, caller: Caller) -> Response:
    """List the alerts that the caller may see: firing ones first, then pending and resolved ones."""
    keeper = keeper_of(service(request))
    return JSONResponse([alert_out(keeper, alert) for alert in keeper.all() if may_see(caller, alert)])


@router.get("/alerts/rules", response_model=list[AlertRuleOut])
async def rules(request: Request, caller: Caller) -> Response:
    """List the rules that hold; for admins."""
    caller.must_be_admin()
    found = [
        {
            "name": rule.name,
            "when": rule.when,
            "event": rule.event,
            "for_s": rule.for_,
            "count": rule.count,
            "within_s": rule.within,
            "severity": rule.severity,
            "message": rule.message,
            "to": list(rule.to or ()),
        }
        for rule in keeper_of(service(request)).rules.values()
    ]
    return JSONResponse(found)


@router.post("/alerts/{alert_id}/acknowledge", response_model=AlertOut)
async def acknowledge(request: Request, caller: Caller, alert_id: AlertPath) -> Response:
    """Note that an alert is taken care of: it is not told again while it lasts. For admins."""
    caller.must_be_admin()
    keeper = keeper_of(service(request))
    return JSONResponse(alert_out(keeper, await keeper.acknowledge(alert_id, caller.asker)))


@router.get("/silences", response_model=list[SilenceOut])
async def silences(request: Request, caller: Caller) -> Response:
    """List the silences that are not over; for admins."""
    caller.must_be_admin()
    return JSONResponse([silence_out(each) for each in keeper_of(service(request)).silences])


@router.post("/silences", response_model=SilenceOut, status_code=201)
async def silence(request: Request, caller: Caller, wanted: SilenceIn) -> Response:
    """Tell nothing for a time of alerts of a rule, or with some labels. For admins."""
    caller.must_be_admin()
    keeper = keeper_of(service(request))
    if not wanted.rule and not wanted.labels.strip():
        raise RotaError("rule, labels: name a rule, or labels, or both")
    if wanted.rule and wanted.rule not in keeper.rules:
        raise RotaError(f"rule: unknown rule {wanted.rule!r}; {did_you_mean(wanted.rule, keeper.rules)}")
    made = await keeper.silence(wanted.rule, parse_matchers(wanted.labels), wanted.for_s, wanted.why, caller.asker)
    return JSONResponse(silence_out(made), status_code=201)


@router.delete("/silences/{silence_id}", status_code=204)
async def unsilence(request: Request, caller: Caller, silence_id: SilencePath) -> Response:
    """End a silence. For admins."""
    caller.must_be_admin()
    await keeper_of(service(request)).unsilence(silence_id, caller.asker)
    return Response(status_code=204)
