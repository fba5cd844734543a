"""Speed factors of users: a function of a job and its nodes that every speed is multiplied with."""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.errors import RotaError, did_you_mean
from rota.core.model.cluster import Node
from rota.core.model.job import Job
from rota.core.model.placement import Placement
from rota.plugins import Plugin, PluginKind, find_plugin, names_of

SPEEDS = PluginKind(what="speed factor", group="rota.speeds")


def speed_factor(spec: str) -> Plugin:
    """The function that `FILE.py:FUNCTION` or an entry point's name means."""
    found = find_plugin(SPEEDS, spec)
    if found is None:
        raise RotaError(f"unknown speed factor {spec!r}; {did_you_mean(spec, names_of(SPEEDS))}, or FILE.py:FUNCTION")
    return found


def factor_of(spec: str, job: Job, placement: Placement, nodes: Sequence[Node]) -> float:
    """What a user's function makes of the speed of a job on a placement; a number above 0."""
    found = speed_factor(spec)
    used = tuple(nodes[index] for index in dict.fromkeys(slot.node for slot in placement))
    about = f"job {job.id} on {', '.join(str(node.id) for node in used[:3])}{'...' if len(used) > 3 else ''}"
    factor = found.number(about, job, used)
    if not factor > 0:
        raise found.fault(f"for {about} it returned {factor:g}; it must return a number above 0")
    return factor
