"""`rota estimate`: learn what jobs need from past runs, ask for it, and see how far to trust that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.cli import human
from rota.cli.manager.connect import ServerOption
from rota.cli.render import Column, OutputFormat, OutputOption, emit, progress
from rota.cli.terminal import echo
from rota.core.errors import RotaError

if TYPE_CHECKING:
    from rota.estimate.cross_validation import Trust
    from rota.estimate.observations import Observation

app = typer.Typer(help="Learn from past runs what jobs need, and how far to trust that.", no_args_is_help=True)
DataArgument = Annotated[
    Path, typer.Argument(metavar="DATA", help="Past runs: a CSV or Parquet table, or `h200`.", show_default=False)
]
LabelOption = Annotated[
    list[str] | None, typer.Option("--label", help="Only this label; may be repeated.", metavar="NAME")
]
SeedOption = Annotated[int, typer.Option(help="For the split and the forests.")]


@app.command()
def score(
    data: DataArgument,
    label: LabelOption = None,
    seed: SeedOption = 0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Judge estimates on held-out runs: configurations at random, and whole kinds of model left out.

    Examples:

      rota estimate score h200 --label gpu_memory_mb --label step_s -o json

      rota estimate score runs.csv
    """
    from rota.estimate.forest import one_thread
    from rota.estimate.observations import read_observations
    from rota.estimate.score import scores

    runs = read_observations(data)
    labels = _wanted(label) or _enough(runs, data)
    with one_thread(), progress("scoring", 2 * len(labels)) as bar:
        found = []
        for each in scores(runs, labels, seed):
            found.append(asdict(each))
            bar.advance()
    emit(found, _SCORE_COLUMNS, output)


@app.command()
def train(
    data: DataArgument,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The file to write.", show_default=False)],
    label: LabelOption = None,
    seed: SeedOption = 0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Learn from past runs, and write that to a file; prints the error on held-out runs of each kind.

    Examples:

      rota estimate train runs.csv model.json
    """
    from rota.estimate.estimator import Estimator
    from rota.estimate.forest import one_thread
    from rota.estimate.model_file import write_estimator
    from rota.estimate.observations import read_observations

    runs = read_observations(data)
    labels = _wanted(label) or _enough(runs, data)
    with one_thread(), progress("learning", None):
        estimator = Estimator.learn(runs, labels, seed)
    write_estimator(estimator, model)
    rows = [
        {"label": name, "kind": kind, "runs": trust.runs, "median_error": error}
        for name, trust in estimator.trust.items()
        for kind, error in (*sorted(trust.errors.items()), *_never_seen(trust))
    ]
    emit(rows, _TRUST_COLUMNS, output)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Written by `rota estimate train`.")],
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="The training command, after `--`.", show_default=False)
    ],
    label: LabelOption = None,
    bound: Annotated[float, typer.Option(help="Trust estimates whose measured error is at most this.", min=0.0)] = 0.25,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Estimate what a command will need from its flags, with an interval and whether to trust it.

    Examples:

      rota estimate train h200 model.json

      rota estimate predict model.json -- python train.py --model resnet50 --batch 64 --size 224 \\
        --precision bf16 --optimizer adam
    """
    from rota.estimate.flags import attributes_of
    from rota.estimate.forest import one_thread
    from rota.estimate.model_file import read_estimator

    estimator = read_estimator(model)
    labels = _wanted(label) or list(estimator.trust)
    for name in labels:
        if name not in estimator.trust:
            raise RotaError(f"--label is {name!r}: {model} has not learned that, but {', '.join(estimator.trust)}")
    attributes = attributes_of(command)
    with one_thread():
        found = [estimator.predict(name, attributes) for name in labels]
    rows = [{**asdict(each), "trusted": each.is_trusted(bound), "why": each.doubt(bound)} for each in found]
    emit(rows, _ESTIMATE_COLUMNS, output)
    labels_by_doubt: dict[str, list[str]] = {}
    for row in rows:
        if row["why"]:
            labels_by_doubt.setdefault(row["why"], []).append(row["label"])
    for why, doubted in labels_by_doubt.items():
        echo(f"not trusted ({', '.join(doubted)}): {why}", err=True)


@app.command()
def curve(
    data: DataArgument,
    of: Annotated[str, typer.Option("--of", help="The label to draw.", metavar="NAME")],
    by: Annotated[str, typer.Option("--by", help="The attribute that grows: a number of 1 or more.", metavar="NAME")],
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Fit how a label grows with an attribute, for each kind of run, robustly against noise and outliers.

    Examples:

      rota estimate curve runs.csv --of step_s --by gpus
    """
    from rota.estimate.curve import curves_by_kind
    from rota.estimate.observations import known_label, read_observations

    found = curves_by_kind(read_observations(data), known_label(of), by)
    rows = [{"kind": kind, "points": points, "curve": str(fit), **asdict(fit)} for kind, points, fit in found]
    emit(rows, _CURVE_COLUMNS, output)


@app.command()
def report(
    days: Annotated[float, typer.Option(help="How far back.", min=0.001, max=3650)] = 7.0,
    server: ServerOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List jobs that asked for at least twice what they used, the most wasteful first, and what that comes to.

    Examples:

      rota estimate report

      rota estimate report --days 30 -o csv
    """
    from rota.sdk.client import Client

    rows = Client(server).over_requested(days)
    echo(_wasted(rows, days), err=True)
    if output in (OutputFormat.TABLE, OutputFormat.WIDE):
        from rota.cli.jobs.show import amount_of

        rows = [{**row, **{key: amount_of(row["what"], row[key]) for key in ("asked", "used")}} for row in rows]
    emit(rows, _OVER_COLUMNS, output)


def _never_seen(trust: Trust) -> list[tuple[str, float]]:
    """The error of kinds that were left out whole, if there were enough."""
    return [] if trust.unseen is None or trust.unseen.error is None else [("(never seen)", trust.unseen.error)]


def _wanted(names: Sequence[str] | None) -> list[str]:
    from rota.estimate.observations import known_label

    return [known_label(name) for name in names or ()]


def _enough(runs: Sequence[Observation], data: Path) -> list[str]:
    """The labels that can be learned; a table in which there is none is refused."""
    from rota.estimate.cross_validation import FEWEST
    from rota.estimate.score import labels_in

    labels = labels_in(runs)
    if not labels:
        different = len({run.key for run in runs})
        raise RotaError(
            f"{data}: {different} different runs are too few; at least {FEWEST} with a label above 0 are needed"
        )
    return labels


def _wasted(rows: Sequence[Mapping[str, Any]], days: float) -> str:
    """A sentence on what was requested and not used."""
    when = f"the last {days:g} days" if days != 1 else "the last day"
    if not rows:
        return f"no job asked for twice what it used in {when}, as far as usage is known"
    hours: dict[str, float] = {}
    for row in rows:
        hours[row["what"]] = hours.get(row["what"], 0.0) + (row["asked"] - row["used"]) * row["run_s"] / 3600
    parts = [f"{hours[what] / unit:,.3g} {name}" for what, (name, unit) in _HOURS.items() if what in hours]
    jobs, owners = len({row["id"] for row in rows}), len({row["owner"] for row in rows})
    askers = f"{jobs} job{'s' * (jobs != 1)} of {owners} owner{'s' * (owners != 1)}"
    return f"{askers} asked for at least twice what they used in {when}; not used: {', '.join(parts)}"


_SCORE_COLUMNS = (
    Column(key="split"),
    Column(key="label"),
    Column(key="runs", right=True),
    Column(key="median_error", title="median error", show=human.percent, right=True),
    Column(key="p90_error", title="nine in ten", show=human.percent, right=True),
    Column(key="rmsre", title="rMSRE", show=human.percent, right=True),
    Column(key="o_err", title="O-err", show=human.percent, right=True),
    Column(key="bom_err", title="BoM-err", show=human.percent, right=True),
    Column(key="bom_model", title="best of models", wide=True),
    Column(key="coverage", show=human.percent, right=True),
    Column(key="interval_ratio", title="high/low", show=lambda ratio: f"{ratio:.2f}", right=True),
    Column(key="forest_error", title="forest alone", show=human.percent, right=True),
    Column(key="white_box_error", title="white box alone", show=human.percent, right=True),
)
_CURVE_COLUMNS = (
    Column(key="kind"),
    Column(key="points", right=True),
    Column(key="curve"),
    Column(key="error", title="held-out error", show=human.percent, right=True),
)
_OVER_COLUMNS = (
    Column(key="id", title="job"),
    Column(key="name"),
    Column(key="tenant"),
    Column(key="owner"),
    Column(key="what"),
    Column(key="asked", right=True),
    Column(key="used", right=True),
    Column(key="over", title="times", show=lambda times: f"{times:.1f}", right=True),
    Column(key="run_s", title="ran for", show=human.duration, right=True),
)
_HOURS = {
    "gpus": ("GPU hours", 1),
    "gpu_memory": ("GiB hours of GPU memory", 2**30),
    "cpus": ("CPU hours", 1),
    "memory": ("GiB hours of memory", 2**30),
}
_TRUST_COLUMNS = (
    Column(key="label"),
    Column(key="kind"),
    Column(key="runs", right=True),
    Column(key="median_error", title="median error", show=human.percent, right=True),
)
_ESTIMATE_COLUMNS = (
    Column(key="label"),
    Column(key="value", title="estimate", show=lambda value: f"{value:,.4g}", right=True),
    Column(key="low", show=lambda value: f"{value:,.4g}", right=True),
    Column(key="high", show=lambda value: f"{value:,.4g}", right=True),
    Column(key="error", title="measured error", show=human.percent, right=True),
    Column(key="trusted", show=lambda yes: "yes" if yes else "no"),
)
