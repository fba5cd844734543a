"""`rota truth` and `rota what-if`: forecasts and simulations against what happened."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any

import typer

from rota.cli.completion import policy_names
from rota.cli.human import percent
from rota.cli.manager.connect import ServerOption
from rota.cli.render import Column, OutputFormat, OutputOption, emit
from rota.cli.terminal import echo
from rota.core.errors import RotaError

Json = dict[str, Any]
SIMULATION_TIMEOUT_S = 150.0


class TruthGroup(Enum):
    """How forecasts are grouped."""

    POLICY = "policy"
    HORIZON = "horizon"
    KIND = "kind"
    SIZE = "size"
    CAUSE = "cause"
    TENANT = "tenant"
    TIME = "time"


class TruthMoment(Enum):
    """The moment that was forecast."""

    START = "start"
    END = "end"


def _signed(value: float) -> str:
    return f"{100 * value:+.1f}%"


def _seconds(value: float) -> str:
    return f"{value:,.1f}"


COLUMNS = (
    Column(key="by"),
    Column(key="group"),
    Column(key="forecasts", right=True),
    Column(key="overdue", right=True),
    Column(key="coverage", title="in 90% range", right=True, show=percent),
    Column(key="coverage_uncalibrated", title="uncalibrated", right=True, show=percent, wide=True),
    Column(key="median_error", title="median error", right=True, show=percent),
    Column(key="p90_error", title="p90 error", right=True, show=percent),
    Column(key="lateness", right=True, show=_signed, wide=True),
    Column(key="width", title="range/wait", right=True, show=percent, wide=True),
)
SIDES = (
    Column(key="what"),
    Column(key="policy"),
    Column(key="devices", right=True),
    Column(key="avg_jct_s", title="mean completion s", right=True, show=_seconds),
    Column(key="median_jct_s", title="median s", right=True, show=_seconds),
    Column(key="p99_jct_s", title="p99 s", right=True, show=_seconds),
    Column(key="avg_wait_s", title="mean wait s", right=True, show=_seconds),
    Column(key="preemptions", right=True),
    Column(key="error_bar", title="error bar", right=True, show=lambda value: f"± {percent(value)}"),
)
CAUSES = (
    Column(key="assumption", title="replaced by what happened"),
    Column(key="forecasts", right=True),
    Column(key="median_error", title="median error", right=True, show=percent),
    Column(key="mean_error", title="mean error", right=True, show=percent),
    Column(key="explains", right=True, show=percent),
)


def truth(
    days: Annotated[float, typer.Option(help="The period, in days.", min=0.001, max=3650)] = 7.0,
    of: Annotated[TruthMoment, typer.Option(help="The moment that was forecast.")] = TruthMoment.START,
    by: Annotated[list[TruthGroup] | None, typer.Option(help="Only these groups; may be given several times.")] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate/--no-simulate", help="Also simulate the period and compare completion times.")
    ] = True,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also find which assumption explains the error of starts; a minute.")
    ] = False,
    server: ServerOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show how forecasts and simulations compare with what happened.

    Errors are parts of the time from the forecast to the moment. Ranges should hold 90% of the moments; where they held
    fewer, new ranges are wider.

    Examples:

      rota truth

      rota truth --days 1 --of end --by horizon -o json
    """
    from rota.sdk.client import Client

    client = Client(server, timeout_s=SIMULATION_TIMEOUT_S)
    found = client.get(f"/truth?days={days:g}&of={of.value}")
    compared, why = _asked(client, f"/truth/simulated?days={days:g}") if simulate else (None, None)
    causes, why_not = _asked(client, f"/truth/causes?days={days:g}") if explain else (None, None)
    if output is OutputFormat.JSON:
        emit(
            [{**found, "simulated": compared, "simulated_why": why, "causes": causes, "causes_why": why_not}],
            (),
            output,
        )
        return
    emit(_rows(found, by), COLUMNS, output)
    if output is OutputFormat.CSV:
        return
    _say_factors(found)
    if compared is not None:
        echo()
        _show_sides(compared, output)
    elif why is not None:
        echo(f"not simulated: {why}", err=True)
    if causes is not None:
        echo()
        emit(causes, CAUSES, output)
    elif why_not is not None:
        echo(f"not explained: {why_not}", err=True)


def _asked(client: Any, path: str) -> tuple[Any, str | None]:
    """Return what the manager computes, or why it can't."""
    try:
        return client.get(path), None
    except RotaError as error:
        return None, str(error)


def _rows(found: Json, by: list[TruthGroup] | None) -> list[Json]:
    rows = [] if by else [{"by": "all", **found["all"], "group": ""}]
    for group in by or (TruthGroup.POLICY, TruthGroup.HORIZON, TruthGroup.KIND, TruthGroup.TIME):
        table = found["over_time"] if group is TruthGroup.TIME else found["groups"][group.value]
        rows += [{"by": group.value, **row} for row in table]
    return rows


def _say_factors(found: Json) -> None:
    factors = found["calibration"][found["moment"]]
    if factors["seen"]:
        echo(
            f"new ranges are stretched {factors['below']:.2f} times below and {factors['above']:.2f} times above the "
            f"median, by what was seen of {factors['seen']:,} forecasts"
        )


def _show_sides(answer: Json, output: OutputFormat) -> None:
    error = answer["error"]
    bar = None if error is None else abs(error["metrics"]["avg_jct_s"] or 0.0)
    rows: list[Mapping[str, object]] = []
    if answer["real"] is not None:
        rows.append({"what": "happened", **_side(answer["real"])})
    rows.append({"what": "simulated", **_side(answer["now"]), "error_bar": bar})
    rows += [{"what": "alternative", **_side(side), "error_bar": bar} for side in answer["alternatives"]]
    emit(rows, SIDES, output)
    if error is None:
        echo("no job was submitted and ended under this policy: the simulations have no error bar")
    else:
        echo(
            f"the simulation of the present policy is {_signed(error['metrics']['avg_jct_s'] or 0.0)} off in mean "
            f"completion; per job {percent(error['per_job_median'])} in the median and "
            f"{percent(error['per_job_p90'])} at the 90th percentile, over {error['jobs']:,} jobs"
        )
        if error["by_chance"] is not None:
            least, most = error["by_chance"]
            echo(
                f"with submissions up to 20 ms later, it is {_signed(least)} to {_signed(most)} off in mean completion"
            )


def _side(side: Json) -> Json:
    return {"policy": side["policy"], "devices": side["devices"], **side["metrics"]}


def what_if(
    policy: Annotated[
        list[str] | None,
        typer.Option(help="An alternative, with its options; may be given several times.", autocompletion=policy_names),
    ] = None,
    add_nodes: Annotated[
        list[str] | None, typer.Option(help="TYPE=COUNT: nodes more than now, for all alternatives.", metavar="TYPE=N")
    ] = None,
    days: Annotated[float, typer.Option(help="Simulate the jobs of these last days.", min=0.001, max=3650)] = 1.0,
    restart_cost: Annotated[
        float | None, typer.Option(help="Seconds that a restart costs; learned from the journal if not given.", min=0)
    ] = None,
    server: ServerOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Simulate recent jobs under other policies or with more nodes.

    The present policy is simulated too; its distance to what really happened is the error bar of every alternative.

    Examples:

      rota what-if --policy srtf --policy las --days 3

      rota what-if --add-nodes A100=2
    """
    from rota.sdk.client import Client

    question = {"policies": policy or [], "add_nodes": _nodes(add_nodes or []), "days": days}
    if restart_cost is not None:
        question["restart_s"] = restart_cost
    answer = Client(server, timeout_s=SIMULATION_TIMEOUT_S).post("/what-if", question)
    if output is OutputFormat.JSON:
        emit([answer], (), output)
    else:
        _show_sides(answer, output)


def _nodes(asked: list[str]) -> dict[str, int]:
    found = {}
    for each in asked:
        kind, equals, count = each.partition("=")
        if not equals or not count.isdigit():
            raise RotaError(f"--add-nodes {each!r}: write it like A100=2")
        found[kind] = int(count)
    return found
