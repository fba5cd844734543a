"""`rota show` and `rota why`: one job."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.cli.completion import all_job_ids, job_ids
from rota.cli.manager.connect import ServerOption, client_for
from rota.cli.render import Column, OutputFormat, OutputOption, emit
from rota.cli.terminal import echo
from rota.core.neutral_text import neutral
from rota.sdk.client import Client

if TYPE_CHECKING:
    from rota.drivers.kubernetes.user import ClusterUser
    from rota.drivers.slurm.user import SlurmUser

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.", autocompletion=job_ids)]
AnyJobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.", autocompletion=all_job_ids)]


def show(job: AnyJobArgument, server: ServerOption = None, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show everything about a job; secrets are masked.

    Examples:

      rota show 17

      rota show 17 -o json
    """
    client = client_for(server)
    found = client.job(job)
    compared = _resources(client, job)
    gpus = _gpus(client, job)
    if output is not OutputFormat.TABLE:
        emit([{**found, "resources": compared, **gpus}], (), output)
        return
    found["state"] = found.pop("state_text", None) or found["state"]
    for key, value in found.items():
        if value not in (None, "", []):
            echo(f"{neutral(key) + ':':<12} {neutral(_text(value))}")
    _show_resources(compared)
    for each in gpus.get("warnings", ()):
        echo(f"warning:     {neutral(each['text'])}")
    if gpus.get("energy"):
        echo(f"energy:      {_energy(gpus['energy'])}")


def why(job: JobArgument, server: ServerOption = None, output: OutputOption = OutputFormat.TABLE) -> None:
    """Explain why a job waits, and when it is expected to start.

    Examples:

      rota why 17
    """
    client = client_for(server)
    found = client.job(job)
    explained = client.why(job)
    compared = _resources(client, job)
    if output is not OutputFormat.TABLE:
        emit([{"id": found["id"], **explained, "resources": compared}], (), output)
        return
    sentence = explained["reason"]["sentence"] if explained["reason"] else found["message"]
    if explained["reason"] and explained["reason"]["code"] == "waits-to-retry" and found["message"]:
        sentence += f": {found['message']}"
    echo(
        f"job {job} is {found.get('state_text') or explained['state']}" + (f": {neutral(sentence)}" if sentence else "")
    )
    for line in _verdict_lines(explained.get("verdicts") or []):
        echo(neutral(line))
    if explained["expected"] is not None:
        for line in expectation(explained["expected"]):
            echo(line)
    for each in explained.get("more_nodes") or ():
        echo(neutral(each["sentence"]))
    _show_resources(compared)


def _verdict_lines(verdicts: list[dict[str, Any]]) -> list[str]:
    """The verdict about the last failed attempt, and its evidence."""
    if not verdicts:
        return []
    last = verdicts[-1]
    where = ", ".join(f"{name} {chance:.0%}" for name, chance in last.get("node_fault", {}).items())
    odds = f"; at fault: the job {last['job_fault']:.0%}" + (f", {where}" if where else "") if where else ""
    lines = [f"verdict: {last['cause']}, of the {last['blame']}{odds}"]
    if last.get("evidence"):
        lines.append(f"evidence: {last['evidence']}")
    return [*lines, f"advice: {last['advice']}"] if last.get("advice") else lines


def _resources(client: Client | ClusterUser | SlurmUser, job: str) -> list[dict[str, Any]]:
    """Request, estimate and use; a Kubernetes cluster has none of them."""
    return client.resources(job) if isinstance(client, Client) else []


def _gpus(client: Client | ClusterUser | SlurmUser, job: str) -> dict[str, Any]:
    """Energy and warnings, without the samples; a Kubernetes cluster has none of them."""
    if not isinstance(client, Client):
        return {}
    found = client.job_gpus(job)
    return {"energy": found["energy"], "warnings": found["warnings"]}


def _energy(energy: dict[str, Any]) -> str:
    words = f"{energy['devices_kwh']:.4f} kWh"
    if energy["cost"] is not None:
        words += f", {energy['cost']:.2f} {energy['currency']}".rstrip()
    if energy["carbon_g"] is not None:
        words += f", {energy['carbon_g']:.0f} g CO2e"
    return f"{words} ({energy['note']})" if energy["note"] else words


def _show_resources(compared: list[dict[str, Any]]) -> None:
    """What a task requested, is estimated to need, and used, side by side."""
    if not compared:
        return
    rows = [
        {
            "what": each["what"],
            "asked": _asked(each),
            "estimate": _estimated(each),
            "used": None if each["used"] is None else amount_of(each["what"], each["used"]),
        }
        for each in compared
    ]
    echo()
    emit(rows, _RESOURCES, OutputFormat.TABLE)
    for each in compared:
        if each["why"]:
            echo(f"{each['what']}: {each['why']}")


def _asked(each: dict[str, Any]) -> str:
    """What a task asked for, or the limit that it has without."""
    if each.get("default"):
        return f"{amount_of(each['what'], each['default'])} (default limit)"
    return amount_of(each["what"], each["asked"]) + _origin(each)


def _origin(each: dict[str, Any]) -> str:
    """The origin of an amount that the user did not choose."""
    if not each["auto"]:
        return ""
    return f" (auto, raised {each['raised']} time{'s' * (each['raised'] != 1)})" if each["raised"] else " (auto)"


def _estimated(each: dict[str, Any]) -> str | None:
    if each["estimate"] is None:
        return None
    low, high = (amount_of(each["what"], each[end]) for end in ("low", "high"))
    error = "error not known" if each["error"] is None else f"error {each['error']:.0%}"
    trust = "" if each["trusted"] else ", not trusted"
    return f"{amount_of(each['what'], each['estimate'])} ({low} to {high}; {error}{trust})"


def amount_of(what: str, value: float) -> str:
    """GPUs, CPUs or bytes as text; a dash where none are requested."""
    if what in ("memory", "gpu_memory"):
        return "-" if not value else f"{value / 2**30:.2f} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"
    return "-" if not value else f"{value:.3g}"


_RESOURCES = (
    Column(key="what", title="of a task"),
    Column(key="asked"),
    Column(key="estimate"),
    Column(key="used"),
)


def expectation(expected: dict[str, Any]) -> list[str]:
    """When a job is expected to start and end, what that rests on, or why it is not known; a line each."""
    lines = []
    reason = expected.get("reason")
    if expected["usual"] is not None:
        place = f"as number {expected['position']} of those that wait"
        lines.append(f"expected start: {_span(expected)}, {place}")
    elif expected["earliest"] is not None:
        lines.append(f"expected start: not within a month, at the earliest {_clock(expected['earliest'])}")
    elif reason is None:
        lines.append("expected start: not within a month, as things are")
    if expected.get("end") is not None and expected["end"]["usual"] is not None:
        lines.append(f"expected end: {_span(expected['end'])}")
    if reason is not None:
        lines.append(f"note: {reason}" if lines else f"no forecast: {reason}")
    if lines and expected.get("basis") and expected["earliest"] is not None:
        lines.append(f"it rests on: {expected['basis']}")
    return lines


def _span(span: dict[str, Any]) -> str:
    return f"{_clock(span['usual'])} (90%: {_clock(span['earliest'])} to {_clock(span['latest'])})"


def _clock(moment: str | None) -> str:
    if moment is None:
        return "later than in a month"
    at = datetime.fromisoformat(moment).astimezone()
    return at.strftime("%H:%M:%S" if at.date() == datetime.now(at.tzinfo).date() else "%Y-%m-%d %H:%M")


def _text(value: object) -> str:
    if isinstance(value, dict):
        return str(value["sentence"]) if "sentence" in value else json.dumps(value, ensure_ascii=False)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
