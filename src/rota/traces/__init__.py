"""Workload files and generators: what arrives when, and how it will really go."""

from rota.traces.formats import FORMATS, TraceFormat, read_trace
from rota.traces.readers.alibaba import read_alibaba_nodes
from rota.traces.readers.own_write import write_trace
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
