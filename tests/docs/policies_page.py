"""Write `docs/reference/policies.md` from the declarations of the policies."""

from __future__ import annotations

import dataclasses
import inspect
import typing

from docs.pages import anchor
from rota.mechanisms.declare import DeclaredPolicy, Traits
from rota.mechanisms.parameters import describe_type, show_value
from rota.perf.speed.sharing_labels import SHARING_LABELS
from rota.policies import BUILT_IN, find_policy

HEAD = """\
# Policies

<!-- Written by tests/docs/rewrite.py from what the policies declare; change them, not this page. -->

On the command line a policy is `NAME` or `NAME:key=value,key=value`; a list is written `a/b/c`. `rota policies`,
`rota policies NAME` and `rota policies --compare` print the same. To add a policy, see [write a
policy](../howto/write-a-policy.md); for placements, see [placement](placement.md).

Most are *ordering* policies: they define the order of jobs, and the [list
scheduler](../explain/architecture.md#the-list-scheduler) does the rest. Unless its entry states otherwise, later jobs
that fit may start before one that does not. Policies with `round_s` plan in rounds.

Every policy except `shockwave` and `gavel/...` also accepts the options of the [preemption
guard](../decisions/0009-preemption-guard.md). With `protect=unsaved` a running job that would start over is never
stopped, moved or resized, unless it is `preemptible` or has priority -1. With `min_run_s=SECONDS` no job is before it
has held its devices for so long; that time grows by the factor `min_run_growth` (2) with each preemption that lost
work, and by `min_run_s` with each that did not. In a simulation the defaults are `protect=none,min_run_s=0`, as
published; a manager starts with `protect=unsaved,min_run_s=60`.

Every policy that does not plan in rounds also accepts `consolidate_s=SECONDS`: when something has changed and the
policy itself changes nothing, jobs are moved together until whole nodes, and whole devices that were partly held, are
free. A pass that finds nothing to move is not repeated before this many seconds; after one that moved jobs, the next
may follow as soon as they have arrived. A node is emptied only if there is room elsewhere for every job on it. A job
whose new devices become free only by another's move is stopped and started, which counts as a preemption. Time-sliced
and packed jobs stay in place, and no job is moved to the devices of a suspended job.

Some policies read labels of a job (`labels` in a [job file](job-file.md#labels-of-jobs-that-share-devices) or in a
trace in Rota's own format). A job of priority -1 is opportunistic (`antman`).

"""


def label_table() -> str:
    """Return the table of labels about sharing devices."""
    rows = [
        [f"`{label.name}`", label.means, label.wants, ", ".join(f"`{name}`" for name in label.read_by)]
        for label in SHARING_LABELS
    ]
    return _table(["label", "meaning", "value", "read by"], rows)


def page() -> str:
    """Return the whole page."""
    found = [find_policy(name)[0] for name in BUILT_IN]
    return "\n".join([HEAD + label_table() + "\n", *map(entry, found), _comparison(found)])


def entry(policy: DeclaredPolicy, reference: str = "", behaviour: str = "") -> str:
    """Return a policy's entry; `reference` is the way to the other reference pages, `behaviour` stands on top."""
    parts = [
        f"## {policy.name}",
        policy.summary,
        behaviour,
        f"From: {policy.cites}. Placement, unless `--placement` is given: [`{policy.placement}`]"
        f"({reference}placement.md#{policy.placement}).",
        f"Differences from the paper: {policy.differs}" if policy.differs else "",
        _parameters(policy.params),
        _table(["trait", "value"], [[_words(name), value] for name, value in _traits(policy)]),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _parameters(params: type) -> str:
    fields = dataclasses.fields(params)
    if not fields:
        return "It has no parameters."
    hints = typing.get_type_hints(params)
    rows = [[f"`{field.name}`", f"`{show_value(field.default)}`", describe_type(hints[field.name])] for field in fields]
    return f"{_table(['parameter', 'default', 'value'], rows)}\n\n{inspect.getdoc(params)}"


def _comparison(found: list[DeclaredPolicy]) -> str:
    names = [field.name for field in dataclasses.fields(Traits)]
    rows = [[f"[{policy.name}](#{anchor(policy.name)})", *(value for _, value in _traits(policy))] for policy in found]
    return f"## Side by side\n\n{_table(['policy', *map(_words, names)], rows)}\n"


def _traits(policy: DeclaredPolicy) -> list[tuple[str, str]]:
    return list(dataclasses.asdict(policy.traits).items())


def _words(name: str) -> str:
    return name.replace("_", " ")


def _table(titles: list[str], rows: list[list[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
