"""Which devices a job gets. This module is the table of names."""

from __future__ import annotations

import math

from rota.core.errors import RotaError, did_you_mean
from rota.core.model.job import Level, Locality
from rota.perf.speed.network import Weighting, weighting
from rota.placement.link_neighbours import LinkNeighbours
from rota.placement.patterns import Pattern
from rota.placement.ranked import PLACEMENTS, NodeChoice
from rota.placement.styles import Style
from rota.plugins import find_plugin, names_of

__all__ = ["ATTEMPTS", "ATTEMPT_S", "SUMMARIES", "NodeChoice", "Style", "on_network", "style"]

SUMMARIES = {
    "any": "the first free devices in node order; how many nodes does not matter",
    "consolidate": "as few nodes as possible; waits for that for relax_after=S seconds and per_run=F of its run time",
    "spread": "one task per node, round robin, emptiest nodes first",
    "best-fit": "the fullest nodes that still have room",
    "consecutive": "the tightest run of consecutive nodes, as Slurm chooses them",
    "even": "as few nodes as possible with equally many tasks on each",
    "attempts": "as few nodes as possible for 3 attempts, within a rack for 3 more; every=S is how long one takes",
    "skew": "as few nodes as possible, required, for models with one dominant tensor; others as with any",
    "liquid": "each task where it adds least traffic over distance; h=levels, h=nodes or h=1/4/40 is how far",
    "links": "where the job's own exchange takes least time; links:FILE is the network file",
    "cassini": "where the job fits best beside those that send on the same links; cassini:FILE is the network file",
}

_PATTERNS = {
    "any": Pattern.FIRST,
    "consolidate": Pattern.FEWEST_NODES,
    "spread": Pattern.SPREAD,
    "best-fit": Pattern.FULLEST,
    "consecutive": Pattern.CONSECUTIVE,
    "even": Pattern.EVEN,
    "attempts": Pattern.FEWEST_NODES,
    "skew": Pattern.FEWEST_NODES,
    "liquid": Pattern.FEWEST_NODES,
    "links": Pattern.FEWEST_NODES,
    "cassini": Pattern.FEWEST_NODES,
}
_BY_LINKS = ("links", "cassini")


def on_network(spec: str, network: str | None) -> str:
    """A placement by name; `links` and `cassini` without a file go by the network of the run."""
    return f"{spec}:{network}" if spec in _BY_LINKS and network is not None else spec


def style(spec: str) -> Style:
    """The style for `NAME`, `consolidate:relax_after=SECONDS,per_run=FRACTION`, `attempts:every=SECONDS`,
    `liquid:h=DISTANCES`, `links:FILE`, `cassini:FILE`, a name that another package adds, or `FILE.py:FUNCTION`."""
    name, _, options = spec.partition(":")
    if name not in _PATTERNS:
        ranking = find_plugin(PLACEMENTS, spec)
        if ranking is None:
            known = [*_PATTERNS, *names_of(PLACEMENTS)]
            raise RotaError(f"unknown placement {name!r}; {did_you_mean(name, known)}")
        return Style(name=spec, pattern=Pattern.FIRST, ranking=ranking)
    if name == "skew" and not options:
        return Style(name=name, pattern=Pattern.FEWEST_NODES, locality_by_default=Locality(hard=True), by_skew=True)
    if name in _BY_LINKS:
        if not options:
            raise RotaError(f"placement {name!r} needs the network file; write {name}:FILE, or give the run a network")
        neighbours = LinkNeighbours() if name == "cassini" else None
        return Style(name=spec, pattern=Pattern.FEWEST_NODES, network=options, neighbours=neighbours)
    if name == "liquid":
        return Style(name=spec, pattern=Pattern.FEWEST_NODES, weighting=_distances(options))
    if name == "consolidate":
        return _consolidating(spec, options)
    seconds = _seconds(name, options)
    if name == "attempts":
        return _attempts(spec, ATTEMPT_S if seconds is None else seconds)
    return Style(name=spec, pattern=_PATTERNS[name])


_OPTIONS = {"attempts": "every"}
ATTEMPTS = 3
"""Failed attempts after which a job asks for less locality."""
ATTEMPT_S = 120.0
"""Between two attempts to place a job."""


def _distances(options: str) -> Weighting:
    """The distances of `h=...`; by level without it."""
    key, _, value = options.partition("=") if options else ("h", "", "levels")
    if key != "h":
        raise RotaError(f"placement 'liquid' has no parameter {key!r}; it has h")
    return weighting(value)


def _seconds(name: str, options: str, wanted: str = "") -> float | None:
    """The value of a parameter that a style has."""
    if not options:
        return None
    key, _, value = options.partition("=")
    if (wanted or _OPTIONS.get(name)) != key:
        raise RotaError(
            f"placement {name!r} has no parameter {key!r}; consolidate has relax_after and per_run, attempts has "
            "every, liquid has h, others none"
        )
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        meaning = "a number of 0 or more" if key == "per_run" else "seconds, or inf"
        raise RotaError(f"placement {name!r}: {key} is {value!r}; it must be {meaning}")
    if name == "attempts" and not seconds:
        raise RotaError(f"placement 'attempts': every is {value!r}; an attempt must take longer than 0 seconds")
    return seconds


def _consolidating(spec: str, options: str) -> Style:
    """As few nodes as possible, waited for so many seconds, and for a fraction of the time that a job has run.

    The latter gives locality a price: waiting for it must cost less than running without it is likely to.
    """
    relax_after, _, per_run = options.partition(",")
    if relax_after.startswith("per_run="):
        relax_after, per_run = per_run, relax_after
    values = [
        _seconds("consolidate", each, key) or 0.0 for each, key in ((relax_after, "relax_after"), (per_run, "per_run"))
    ]
    if values[1] == math.inf:
        raise RotaError("placement 'consolidate': per_run is inf; use relax_after=inf")
    locality = Locality(hard=any(values), relax_after_s=values[0])
    return Style(name=spec, pattern=Pattern.FEWEST_NODES, locality_by_default=locality, per_run=values[1])


def _attempts(spec: str, every_s: float) -> Style:
    """Philly's: locality relaxes level by level with the attempts that failed."""
    relax_s = ATTEMPTS * every_s
    return Style(
        name=spec,
        pattern=Pattern.FEWEST_NODES,
        locality_by_default=Locality(hard=True, relax_after_s=relax_s),
        then=((2 * relax_s, Locality(level=Level.RACK, hard=True, relax_after_s=2 * relax_s)),),
    )
