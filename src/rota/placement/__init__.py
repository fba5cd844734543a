"""Which devices a job gets. This module is the table of names."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

from rota.core.errors import RotaError, did_you_mean
from rota.core.inventory import Inventory
from rota.core.model import Job, Locality
from rota.core.placement import Placement
from rota.placement.patterns import Pattern
from rota.placement.search import find
from rota.placement.skew import is_skewed

_NO_WISH = Locality()


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How to choose among free devices: a pattern, and the locality of jobs that ask for none.

    With `by_skew`, both apply only to jobs whose model has skewed tensors; the others take what comes first.
    """

    name: str
    pattern: Pattern
    locality_by_default: Locality = _NO_WISH
    by_skew: bool = False

    def locality(self, job: Job) -> Locality:
        """The job's own wish, or the style's."""
        if job.locality is not None:
            return job.locality
        return _NO_WISH if self.by_skew and not is_skewed(job.model) else self.locality_by_default

    def alike(self, job: Job) -> Hashable:
        """Jobs with the same roles and wishes are placed in the same way."""
        if job.locality is None and not job.exclusive and job.elastic is None and not self.by_skew:
            return job.roles
        return (job.roles, self.locality(job), self._pattern(job), job.exclusive, job.elastic)

    def find(self, inventory: Inventory, job: Job, insist: Locality | None) -> Placement | None:
        """Devices for all tasks of a job, or None."""
        return find(inventory, job, self._pattern(job), insist)

    def _pattern(self, job: Job) -> Pattern:
        return Pattern.FIRST if self.by_skew and not is_skewed(job.model) else self.pattern


SUMMARIES = {
    "any": "the first free devices in node order; how many nodes does not matter",
    "consolidate": "as few nodes as possible; relax_after=S insists on that for the first S seconds of waiting",
    "spread": "one task per node in turn, emptiest nodes first",
    "best-fit": "the fullest nodes that still have room",
    "even": "as few nodes as possible with equally many tasks on each",
    "skew": "as few nodes as possible, insisted on, for models with one dominant tensor; the rest as with any",
}

_PATTERNS = {
    "any": Pattern.FIRST,
    "consolidate": Pattern.FEWEST_NODES,
    "spread": Pattern.SPREAD,
    "best-fit": Pattern.FULLEST,
    "even": Pattern.EVEN,
    "skew": Pattern.FEWEST_NODES,
}


def style(spec: str) -> Style:
    """The style for `NAME` or `NAME:relax_after=SECONDS`."""
    name, _, options = spec.partition(":")
    if name not in _PATTERNS:
        raise RotaError(f"unknown placement {name!r}; {did_you_mean(name, _PATTERNS)}")
    if name == "skew" and not options:
        return Style(name=name, pattern=Pattern.FEWEST_NODES, locality_by_default=Locality(hard=True), by_skew=True)
    relax_after_s = 0.0
    if options:
        key, _, value = options.partition("=")
        if name != "consolidate" or key != "relax_after":
            raise RotaError(f"placement {name!r} has no parameter {key!r}; only consolidate has one, relax_after")
        try:
            relax_after_s = float(value)
        except ValueError:
            relax_after_s = math.nan
        if not relax_after_s >= 0:
            raise RotaError(f"placement {name!r}: relax_after is {value!r}; it must be seconds, or inf")
    return Style(
        name=spec,
        pattern=_PATTERNS[name],
        locality_by_default=Locality(hard=relax_after_s > 0, relax_after_s=relax_after_s),
    )
