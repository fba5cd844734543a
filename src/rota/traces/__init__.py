"""Trace files and generators: the jobs of a workload, their submissions and their true run times."""

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
