"""Forms of budgets and prices, for admins."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from rota.api.access import Principal
from rota.api.accounts.budgets import BudgetIn, put_budget, remove_budget
from rota.api.accounts.usage import PricesIn, put_prices_of
from rota.core.errors import RotaError
from rota.files.job_shape import Name
from rota.files.shape import checked
from rota.live.accounts.budget import AtLimit, Period, UsageBudget
from rota.live.accounts.prices import ANY, Prices
from rota.live.intake.audit_entry import Asker
from rota.web.forms.form_dialog import FormField, Values, ask_form, listed
from rota.web.page_context import PageContext
from rota.web.parts.basics import confirm

_UNITS = {"gpu_hours": "GPU hours", "cost": "cost"}
_AT_LIMIT = {AtLimit.WARN: "warn only", AtLimit.HOLD: "hold waiting jobs", AtLimit.STOP: "stop running jobs too"}


class NamedBudget(BudgetIn):
    """A budget with its name."""

    name: Name


async def ask_budget(context: PageContext, budget: UsageBudget | None = None) -> bool:
    """Show the form of a new budget, or of one that is changed; return whether it was saved."""

    async def send(principal: Principal, values: Values) -> None:
        given = {name: value for name, value in values.items() if value and name not in ("unit", "amount", "warn")}
        given[values["unit"]] = _amount("Amount", values["amount"])
        given["warn"] = [_part(each) for each in listed(values["warn"])]
        wanted = checked(NamedBudget, given, Path("budget"))
        await put_budget(context.service, principal, wanted.name, wanted, is_new=budget is None)

    title = "Add a budget" if budget is None else f"Change budget {budget.name}"
    about = "What a tenant, one of its users or one of its projects may use. Raise it to release jobs that it holds."
    return await ask_form(context, title, _budget_fields(context, budget), send, about=about, done="Budget saved")


def _budget_fields(context: PageContext, budget: UsageBudget | None) -> list[FormField]:
    periods = {each.value: "in all" if each is Period.TOTAL else f"a {each.value}" for each in Period}
    known = [] if context.service.tenants is None else context.service.tenants.names()
    tenants = {name: name for name in known or ["default"]}
    shown: dict[str, Any] = {"tenant": next(iter(tenants)), "period": "month", "at_limit": "stop", "warn": "80%"}
    if budget is not None:
        shown = {name: value or "" for name, value in budget.encode().items()}
        shown |= {"unit": "gpu_hours" if budget.cost is None else "cost", "amount": f"{budget.limit:g}"}
        shown["warn"] = ", ".join(f"{100 * part:g}%" for part in budget.warn)
        tenants.setdefault(budget.tenant, budget.tenant)
    return [
        FormField(name="name", label="Name", value=shown.get("name", ""), is_fixed=budget is not None),
        FormField(name="tenant", label="Tenant", kind="choice", options=tenants, value=shown["tenant"]),
        FormField(name="user", label="User", value=shown.get("user", ""), hint="all users"),
        FormField(name="project", label="Project", value=shown.get("project", ""), hint="all projects"),
        FormField(name="amount", label="Amount", value=shown.get("amount", ""), hint="e.g. 5000"),
        FormField(name="unit", label="Of", kind="choice", options=_UNITS, value=shown.get("unit", "gpu_hours")),
        FormField(name="period", label="Period", kind="choice", options=periods, value=shown["period"]),
        FormField(name="warn", label="Warn at", value=shown["warn"], hint="no warning before"),
        FormField(
            name="at_limit",
            label="When it is used up",
            kind="choice",
            options={each.value: text for each, text in _AT_LIMIT.items()},
            value=shown["at_limit"],
            is_wide=True,
        ),
    ]


async def drop_budget(context: PageContext, name: str) -> bool:
    """Remove a budget once the user confirms; return whether it was done."""
    if not await confirm(
        f"Remove budget {name}?", "Jobs that only it held are released.", f"Remove {name}", grave=True
    ):
        return False

    async def carry_out(principal: Principal, asker: Asker) -> None:
        await remove_budget(context.service, principal, name)

    return await context.act(carry_out, f"Budget {name} removed")


async def ask_prices(context: PageContext, prices: Prices) -> bool:
    """Show the form of the prices; return whether they were saved."""
    latest = prices.lists[-1] if prices.lists else None
    known = {str(each.node.device_type) for each in context.service.control.state.inventory.nodes}
    now = {} if latest is None else latest.per_gpu_hour
    kinds = [*sorted(known), ANY]

    async def send(principal: Principal, values: Values) -> None:
        per_hour = {kind: _amount(_title(kind), values[f"of {kind}"]) for kind in kinds if values[f"of {kind}"]}
        given = {"currency": values["currency"], "per_gpu_hour": per_hour}
        if values["per_kwh"]:
            given["per_kwh"] = _amount("A kWh", values["per_kwh"])
        await put_prices_of(context.service, principal, checked(PricesIn, given, Path("prices")))

    fields = [FormField(name="currency", label="Currency", value=prices.currency, hint="e.g. EUR")]
    per_kwh = "" if latest is None or not latest.per_kwh else f"{latest.per_kwh:g}"
    fields.append(FormField(name="per_kwh", label="A kWh", value=per_kwh, hint="nothing"))
    fields += [
        FormField(
            name=f"of {kind}",
            label=_title(kind),
            value=f"{now[kind]:g}" if kind in now else "",
            hint="nothing" if kind == ANY else "as other types",
        )
        for kind in kinds
    ]
    about = "They hold from the present hour on; what was used before keeps its cost."
    return await ask_form(context, "Prices", fields, send, about=about, done="Prices saved")


def _title(kind: str) -> str:
    return "An hour of other types" if kind == ANY else f"An hour of {kind}"


def _part(text: str) -> float:
    part = _amount("Warn at", text.removesuffix("%"))
    if not 0 < part <= 100:
        raise RotaError(f"Warn at is {text[:40]!r}; it must be above 0% and at most 100%")
    return part / 100


def _amount(what: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        raise RotaError(f"{what} is {text[:40]!r}; it must be a number of 0 or more")
    return found
