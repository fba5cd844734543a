"""A page for each policy: its idea, how it behaves on one standard workload, its paper, parameters and limits."""

from __future__ import annotations

from policy_figure import CLUSTER, RESTART_COST_S, ShownRun, figure, shown_run

from docs.policies_page import entry
from rota.core.errors import RotaError
from rota.mechanisms.declare import DeclaredPolicy
from rota.policies import BUILT_IN, find_policy

BASELINE = "fifo"


def page_name(policy: str) -> str:
    """Return where the page of a policy is on the site."""
    return f"policies/{policy.replace('/', '-')}.md"


def policy_pages() -> dict[str, str]:
    """Return every page by its path."""
    baseline = shown_run(BASELINE)
    return {page_name(name): _page(find_policy(name)[0], baseline) for name in BUILT_IN}


def _page(policy: DeclaredPolicy, baseline: ShownRun) -> str:
    body = entry(policy, "../reference/", _behaviour(policy.name, baseline))
    return f"{body.replace(f'## {policy.name}', f'# {policy.name}', 1)}\n{_further(policy)}\n"


def _behaviour(name: str, baseline: ShownRun) -> str:
    try:
        run = shown_run(name)
    except RotaError as refused:
        return f"It does not take the standard workload: {refused}."
    compared = "" if name == BASELINE else f" With `{BASELINE}`: {_figures(baseline)}."
    return (
        f"{figure(run)}\n\nFourteen jobs `a` to `n` on two nodes of four GPUs (`{CLUSTER}`); "
        f"a restart costs {RESTART_COST_S} s. Each row is a GPU, each colour a job; below, the number of waiting jobs. "
        f"{_figures(run).capitalize()}.{compared} "
        "Fourteen jobs show how a policy behaves, not how good it is."
    )


def _figures(run: ShownRun) -> str:
    return (
        f"mean completion {run.mean_jct_s / 3600:.2f} h, all done after {run.makespan_s / 3600:.2f} h, "
        f"{run.preemptions} preemptions"
    )


def _further(policy: DeclaredPolicy) -> str:
    return (
        f"```sh\nrota policies {policy.name}\n"
        f"rota sim --trace jobs.csv --cluster gpu=32/8 --policy {policy.name}\n```\n\n"
        "[All policies side by side](../reference/policies.md#side-by-side) · "
        "[compare policies with intervals](../howto/run-an-experiment.md) · "
        "[write your own](../howto/write-a-policy.md)"
    )
