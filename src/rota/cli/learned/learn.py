"""`rota learn`: collect experience of jobs beside each other, train a placement on it, see what it is worth."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rota.cli.render import Column, OutputFormat, OutputOption, emit, progress
from rota.cli.terminal import echo
from rota.core.errors import RotaError

app = typer.Typer(help="Learn where to place jobs that share servers.", no_args_is_help=True)

_LAST_SEED = 2**63 - 1
_MOST_THREADS = 1024


def _seconds(value: float) -> str:
    return f"{value:,.0f}"


def _part(value: float) -> str:
    return f"{value:.1%}"


def _figure(value: float) -> str:
    return f"{value:.3f}"


def _refuse_unwritable(file: Path) -> None:
    """Before any work whose result could not be kept."""
    if file.is_dir():
        raise RotaError(f"{file}: it is a folder; name a file")
    if not file.absolute().parent.is_dir():
        raise RotaError(f"{file}: there is no folder {file.parent}")


_SCORE_COLUMNS = (
    Column(key="policy", title="policy"),
    Column(key="avg_jct_s", title="JCT s", show=_seconds, right=True),
    Column(key="low_s", title="from", show=_seconds, right=True),
    Column(key="high_s", title="to", show=_seconds, right=True),
    Column(key="better_than_best_usual", title="shorter by", show=_part, right=True, if_known=True),
    Column(key="low", title="from", show=_part, right=True, if_known=True),
    Column(key="high", title="to", show=_part, right=True, if_known=True),
    Column(key="part_of_oracle", title="of oracle's", show=_part, right=True, if_known=True),
    Column(key="part_low", title="from", show=_part, right=True, if_known=True),
    Column(key="part_high", title="to", show=_part, right=True, if_known=True),
    Column(key="best_in", title="best in", right=True, if_known=True),
)
_CURVE_COLUMNS = (
    Column(key="interval", title="interval", right=True),
    Column(key="placed", title="jobs placed", right=True),
    Column(key="cost", title="cost", show=_figure, right=True),
    Column(key="entropy", title="entropy", show=_figure, right=True),
    Column(key="jct_s", title="JCT s", show=_seconds, right=True),
    Column(key="cpu_s", title="CPU s", show=_seconds, right=True),
)


@app.command()
def collect(
    out: Annotated[Path, typer.Argument(metavar="FILE", help="Where the experience goes.", show_default=False)],
    servers: Annotated[int, typer.Option(help="Servers of the simulated cluster.", min=1)] = 6,
    workloads: Annotated[int, typer.Option(help="How many workloads to run.", min=1)] = 100,
    seed: Annotated[int, typer.Option(help="Seed of workloads and placements.")] = 1,
    journal: Annotated[
        Path | None, typer.Option(help="Take what this journal tells instead of running anything.", metavar="JOURNAL")
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            help="A model of which there is no job, nor in training on this; may be repeated.", metavar="MODEL"
        ),
    ] = None,
) -> None:
    """Run jobs with varied placements and record the neighbours and the speed of each.

    Examples:

      rota learn collect experience.npz --workloads 200 --seed 7

      rota learn collect experience.npz --without vgg16 --without alexnet

      rota learn collect experience.npz --journal results/journal.jsonl
    """
    _refuse_unwritable(out)
    from rota.learn.collect import collect as run
    from rota.learn.workloads import KIND_NAMES, MODELS, WorkloadShape, models_but

    models = models_but(without or ())
    if journal is not None:
        if without:
            raise RotaError("--without leaves models out of simulated workloads; it can't be used with --journal")
        from rota.learn.from_journal import read_experience

        found = read_experience(journal, KIND_NAMES)
    else:
        with progress("collecting", workloads) as bar:
            kinds = tuple(kind for kind in KIND_NAMES if kind in models or kind not in MODELS)
            shape = WorkloadShape(servers=servers, models=models)
            found = run(shape, workloads, seed, kinds, lambda done: bar.update(done))
    found.save(out)
    echo(f"{found.samples:,} speeds in {len(found):,} moments: {out}", err=True)
    if found.nameless:
        known = ", ".join(found.kinds)
        echo(f"{found.nameless:,} are of kinds that are not known, and count as one; known: {known}", err=True)


@app.command()
def train(
    out: Annotated[Path, typer.Argument(metavar="WEIGHTS", help="The file to write.", show_default=False)],
    experience: Annotated[Path, typer.Option(help="Written by `rota learn collect`.", metavar="FILE")],
    intervals: Annotated[int, typer.Option(help="Intervals of all simulated clusters to train for.", min=1)] = 300,
    seed: Annotated[int, typer.Option(help="Seed of everything that is left to chance.", min=0, max=_LAST_SEED)] = 1,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    threads: Annotated[int, typer.Option(help="Processor threads.", min=1, max=_MOST_THREADS)] = 2,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Save the whole state here periodically and at the end.", metavar="FILE")
    ] = None,
    reward: Annotated[
        Path | None,
        typer.Option(
            help="Keep the model of speeds here; if it is there already, it is not fitted again.", metavar="FILE"
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume from the checkpoint.")] = False,
    validate: Annotated[int, typer.Option(help="Workloads on which the curve is measured; 0: none.", min=0)] = 4,
    without: Annotated[
        list[str] | None,
        typer.Option(help="Leave out: reward-model, exploration or replay; may be repeated.", metavar="WHAT"),
    ] = None,
    ways: Annotated[
        int, typer.Option(help="Placements of each job that are compared; 1: only the critic rates them.", min=1)
    ] = 12,
    every: Annotated[int, typer.Option(help="Intervals between two points of the curve.", min=1)] = 25,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Fit a model of speeds to experience, then train a placement against it; prints the learning curve.

    Examples:

      rota learn train harmony.npz --experience experience.npz

      rota learn train harmony.npz --experience experience.npz --checkpoint state.pt --resume --intervals 600
    """
    from rota.learn.session import TrainingRequest, run_training

    _refuse_files(out, checkpoint, reward, resume=resume)
    order = TrainingRequest(
        experience=experience,
        out=out,
        intervals=intervals,
        seed=seed,
        device=device,
        threads=threads,
        checkpoint=checkpoint,
        reward=reward,
        resume=resume,
        validate=validate,
        without=tuple(without or ()),
        ways=ways,
        every=every,
        command=shlex.join(["rota", *sys.argv[1:]]),
    )
    with progress("training", intervals) as bar:
        curve = run_training(order, lambda done: bar.update(done), lambda line: echo(line, err=True))
    emit(curve, _CURVE_COLUMNS, output)


def _refuse_files(out: Path, checkpoint: Path | None, reward: Path | None, *, resume: bool) -> None:
    """Refuse files that can't be written, and a resume without a checkpoint, before any work is done."""
    for file in (out, checkpoint, reward):
        if file is not None:
            _refuse_unwritable(file)
    if resume and checkpoint is None:
        raise RotaError("--resume continues from a checkpoint; name it with --checkpoint FILE")


@app.command("eval")
def evaluate(
    servers: Annotated[int, typer.Option(help="Servers of the simulated cluster.", min=1)] = 6,
    seed: Annotated[int, typer.Option(help="Seed of the workloads.")] = 0,
    workloads: Annotated[int, typer.Option(help="How many workloads to average over.", min=1)] = 10,
    weights: Annotated[
        Path | None, typer.Option(help="Weights to judge; those that come with Rota unless given.", metavar="FILE")
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="Only this way to place jobs; may be repeated.", metavar="NAME")
    ] = None,
    length: Annotated[
        bool, typer.Option("--length/--no-length", help="Whether the learned placement knows the job lengths.")
    ] = True,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Compare the learned placement with the usual ones and with a search that knows the truth.

    Examples:

      rota learn eval --servers 6 --seed 42 -o json

      rota learn eval --servers 64 --seed 42 --weights mine.npz
    """
    from rota.core.errors import did_you_mean
    from rota.learn.evaluation.compare import WAYS, compare, runs_for
    from rota.learn.workloads import KIND_NAMES, WorkloadShape
    from rota.mechanisms.learned.weights import load_learned
    from rota.policies.published.learned.harmony import SHIPPED

    names = policy or list(WAYS)
    for name in names:
        if name not in WAYS:
            raise RotaError(f"--policy: unknown way to place jobs {name!r}; {did_you_mean(name, WAYS)}")
    judged = weights or SHIPPED
    if lacking := [kind for kind in KIND_NAMES if kind not in load_learned(judged).network.kinds]:
        echo(f"{judged}: it takes jobs of {', '.join(lacking)} for one unknown kind", err=True)
    with progress("comparing", workloads * len(runs_for(names))) as bar:
        shape = WorkloadShape(servers=servers)
        found = compare(shape, seed, workloads, judged, names, bar.advance, length=length)
    rows = [asdict(score) for score in found]
    if output is OutputFormat.JSON:
        echo(json.dumps({"seed": seed, "results": rows}, indent=2), lines=True)
        return
    emit(rows, _SCORE_COLUMNS, output)
