"""GPUs on pages: a job's over time with its energy and warnings, and those of the machine as they are now."""

from __future__ import annotations

from typing import Any

from nicegui import html

from rota.drivers.local.gpu.sensors import FIELDS
from rota.store import clock
from rota.web import words
from rota.web.parts.basics import empty, link
from rota.web.parts.charts import chart, over_time

GIB = 2**30
_UPPER = (("busy", "SM busy, %", 0), ("memory_busy", "memory busy, %", 0), ("power_w", "power, W", 1))
_LOWER = (("memory_bytes", "memory, GiB", 0), ("temperature_c", "temperature, °C", 1))


class JobGpus:
    """What is known of a job's GPUs: two charts, the energy, and warnings."""

    def __init__(self) -> None:
        self._text = html.div().classes("stack")
        self._upper = chart({}, "Utilisation and power of the job's GPUs over time", small=True)
        self._lower = chart({}, "Memory and temperature of the job's GPUs over time", small=True)
        self._shown: object = None

    def show(self, report: dict[str, Any]) -> None:
        """Show a job's report, if it has changed."""
        series, lines = report["series"], facts_of(report)
        last = None if series is None else [each["points"][-1:] for each in series["gpus"]]
        if (lines, last) == self._shown:
            return
        self._shown = (lines, last)
        self._text.clear()
        with self._text:
            for line in lines:
                html.p(line)
            if not lines and series is None:
                html.p("No GPU of this job is watched.").classes("muted")
        for drawn, fields in ((self._upper, _UPPER), (self._lower, _LOWER)):
            drawn.set_visibility(series is not None)
            if series is not None:
                drawn.options.clear()
                drawn.options.update(_options(series, fields))
                drawn.update()


def facts_of(report: dict[str, Any]) -> list[str]:
    """Return energy, errors and warnings of a job as sentences."""
    lines = [f"Warning, {words.moment(each['at_s'])}: {each['text']}" for each in report["warnings"]]
    energy, series = report["energy"], report["series"]
    if energy is not None:
        text = f"Energy {energy['devices_kwh']:.3f} kWh"
        if energy["cost"] is not None:
            text += f", cost {energy['cost']:.2f} {energy['currency']}".rstrip()
        if energy["carbon_g"] is not None:
            text += f", {energy['carbon_g']:.0f} g CO2e"
        lines.append(f"{text}; {energy['note']}" if energy["note"] else text)
    if series is not None:
        if series["note"]:
            lines.append(f"Note: {series['note']}.")
        lines.extend(f"GPU {each['gpu']} reported Xid {each['xid']}." for each in series["xids"])
    return lines


def _options(series: dict[str, Any], fields: tuple[tuple[str, str, int], ...]) -> dict[str, Any]:
    lines = []
    for each in series["gpus"]:
        for field, title, axis in fields:
            place = 1 + FIELDS.index(field)
            scale = GIB if field == "memory_bytes" else 1.0
            name = title if len(series["gpus"]) == 1 else f"GPU {each['gpu']} {title}"
            points = [
                [round(clock.shown_s(point[0]) * 1000), None if point[place] is None else point[place] / scale]
                for point in each["points"]
            ]
            lines.append({"name": name, "points": points, "axis": axis})
    return over_time(lines, axes=[{"min": 0}, {"min": 0}], legend=True)


def show_gpus(rows: list[dict[str, Any]]) -> None:
    """Show the GPUs of the machine as a table."""
    if not rows:
        empty("No GPU of this machine is watched.", "rota doctor says what is missing.")
        return
    with html.table().classes("table").props('data-testid="gpus"'):
        with html.thead(), html.tr():
            for title in ("GPU", "SM busy", "Memory busy", "Memory", "Power", "Temperature", "Errors", "Jobs"):
                html.th(title)
        with html.tbody():
            for row in rows:
                with html.tr():
                    html.td(f"{row['gpu']} {row['name']}")
                    html.td(_with_unit(row["busy"], " %"))
                    html.td(_with_unit(row["memory_busy"], " %"))
                    html.td(f"{words.size(row['memory_bytes'])} of {words.size(row['memory_total_bytes'])}")
                    html.td(_with_unit(row["power_w"], " W"))
                    html.td(_with_unit(row["temperature_c"], " °C"))
                    html.td(_errors(row))
                    with html.td():
                        for job_id in row["jobs"]:
                            link(job_id, f"/jobs/{job_id}")
                        if row["other_jobs"]:
                            html.span(f"{row['other_jobs']} of other tenants").classes("muted")


def _errors(row: dict[str, Any]) -> str:
    found = ["does not answer"] if row["lost"] else []
    if row["xid"] is not None:
        found.append(f"Xid {row['xid']}")
    if row["ecc_uncorrected"]:
        found.append(f"{row['ecc_uncorrected']} ECC")
    return ", ".join(found) or "none"


def _with_unit(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.0f}{unit}"
