"""Gavel's traces (Narayanan et al., OSDI 2020): tab-separated, no header, work in steps of a named model.

Ten columns today, seven in its older files. The id of a job is its line, from 0. Priority weight and SLO
(a multiple of a duration that depends on the device) stay labels: only a speed profile can give them meaning.
"""

from __future__ import annotations

from rota.core.errors import RotaError
from rota.traces.assemble import GangCache, plain_job
from rota.traces.builder import Entry, TraceBuilder
from rota.traces.fields import BadLine, amount, bad, number
from rota.traces.source import TraceSource
from rota.traces.workload import Outcome, Workload

NEW_WIDTH = 10
OLD_WIDTH = 7


def detects(source: TraceSource) -> bool:
    """Whether the first line has the columns of a job, with numbers where Gavel has them."""
    fields = source.first_line.split("\t")
    if len(fields) not in (NEW_WIDTH, OLD_WIDTH):
        return False
    try:
        _entry(fields, 0, GangCache("scale_factor"))
    except RotaError:
        return False
    return True


def read(source: TraceSource) -> Workload:
    """Read either width; arrival times stay as they are in the file."""
    intake = TraceBuilder(source)
    gangs = GangCache("scale_factor")
    index = 0
    with source.text() as lines:
        for line, text in enumerate(lines, start=1):
            if not text.strip():
                continue
            try:
                entry = _entry(text.rstrip("\r\n").split("\t"), index, gangs)
            except RotaError as err:
                intake.reject(line, err)
            else:
                intake.entries.append(entry)
                intake.lines.append(line)
            index += 1
    return intake.workload("gavel", counts_steps=True)


def _entry(fields: list[str], index: int, gangs: GangCache) -> Entry:
    if len(fields) == NEW_WIDTH:
        model, _, _, _, _, steps, scale, weight, slo, arrival = fields
        labels = _labels(weight, slo)
    elif len(fields) == OLD_WIDTH:
        model, _, _, _, steps, arrival, scale = fields
        labels = ()
    else:
        raise BadLine(f"it has {len(fields)} tab-separated fields; expected {NEW_WIDTH}, or {OLD_WIDTH} as of old")
    if not model:
        raise bad("job_type", model, "the name of a model")
    job = plain_job(str(index), gangs[scale], amount("total_steps", steps), model=model, labels=labels)
    return amount("arrival_time", arrival), job, Outcome.SUCCEEDED, 1.0


def _labels(weight: str, slo: str) -> tuple[tuple[str, str], ...]:
    """Priority weight, and the SLO where there is one: a negative number means none."""
    labels = (("priority_weight", f"{amount('priority_weight', weight):g}"),)
    factor = number("SLO", slo)
    return labels if factor < 0 else (*labels, ("slo", f"{factor:g}"))
