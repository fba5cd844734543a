"""Workload files and generators: what arrives when, and how it will really go."""

from rota.traces.alibaba import read_alibaba_nodes
from rota.traces.formats import FORMATS, TraceFormat, read_trace
from rota.traces.own_write import write_trace
from rota.traces.workload import Outcome, Submission, Workload

__all__ = [
    "FORMATS",
    "Outcome",
    "Submission",
    "TraceFormat",
    "Workload",
    "read_alibaba_nodes",
    "read_trace",
    "write_trace",
]
