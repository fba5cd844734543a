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

A policy is named on the command line as `NAME` or `NAME:key=value,key=value`; a list is written `a/b/c`. The same is
printed by `rota policies`, `rota policies NAME` and `rota policies --compare`. How to add one:
[write a policy](../howto/write-a-policy.md). What the placements mean: [placement](placement.md).

Most are *ordering* policies: they sort jobs, and the
[list scheduler](../explain/architecture.md#the-list-scheduler) does the rest. Unless its entry states otherwise, later
jobs that fit may pass one that does not. Policies with a `round_s` divide time in rounds.

Every policy that does not plan in rounds also takes `consolidate_s=SECONDS`: when something has changed and the policy
plans nothing, jobs are consolidated until whole nodes, and whole devices that were held in fractions, are free. A pass
that finds nothing to move is not repeated before that many seconds; after one that moved jobs the next may follow as
soon as they run again. A node is emptied only if every job on it fits elsewhere. A job whose target becomes free only
by another's move is stopped and started, which counts as a preemption. Jobs that are time-sliced or packed stay where
they are, and no job is moved to devices on which a suspended job will resume.

Some policies read these labels of a job (`labels` in a [job file](job-file.md#labels-of-jobs-that-share-devices) or in
a trace of Rota's own format). A job of priority -1 is opportunistic (`antman`).

"""


def label_table() -> str:
    """The labels by which jobs say how they share devices."""
    rows = [
        [f"`{label.name}`", label.means, label.wants, ", ".join(f"`{name}`" for name in label.read_by)]
        for label in SHARING_LABELS
    ]
    return _table(["label", "means", "is", "read by"], rows)


def page() -> str:
    """The whole page."""
    found = [find_policy(name)[0] for name in BUILT_IN]
    return "\n".join([HEAD + label_table() + "\n", *map(_entry, found), _comparison(found)])


def _entry(policy: DeclaredPolicy) -> str:
    parts = [
        f"## {policy.name}",
        policy.summary,
        f"From: {policy.cites}. Placement, unless `--placement` is given: [`{policy.placement}`]"
        f"(placement.md#{policy.placement}).",
        f"Differs from the paper: {policy.differs}" if policy.differs else "",
        _parameters(policy.params),
        _table(["", ""], [[_words(name), value] for name, value in _traits(policy)]),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _parameters(params: type) -> str:
    fields = dataclasses.fields(params)
    if not fields:
        return "It has no parameters."
    hints = typing.get_type_hints(params)
    rows = [[f"`{field.name}`", f"`{show_value(field.default)}`", describe_type(hints[field.name])] for field in fields]
    return f"{_table(['parameter', 'default', 'is'], rows)}\n\n{inspect.getdoc(params)}"


def _comparison(found: list[DeclaredPolicy]) -> str:
    names = [field.name for field in dataclasses.fields(Traits)]
    rows = [[f"[{policy.name}](#{anchor(policy.name)})", *(value for _, value in _traits(policy))] for policy in found]
    return f"## Side by side\n\n{_table(['policy', *map(_words, names)], rows)}\n"


def _traits(policy: DeclaredPolicy) -> list[tuple[str, str]]:
    return list(dataclasses.asdict(policy.traits).items())


def _words(name: str) -> str:
    return name.replace("_", " ").replace("preemption", "preemption")


def _table(titles: list[str], rows: list[list[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
