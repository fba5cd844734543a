"""`rota trace`: describe, convert and generate traces."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from rota.cli import human
from rota.cli.render import Column, OutputFormat, OutputOption, emit, progress
from rota.cli.terminal import echo
from rota.core.errors import RotaError
from rota.traces import FORMATS, Workload, read_trace, write_trace
from rota.traces.describe import Description, describe
from rota.traces.generators import DEFAULT_GPUS, DEFAULT_LOAD, DESCRIPTIONS, generate
from rota.traces.readers.any_csv import parse_columns, read_columns
from rota.traces.readers.own_write import as_csv

app = typer.Typer(
    help="Describe, convert and generate traces: files of jobs with the time at which they are submitted.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        help=f"Format of the trace, recognised by its content unless given: {', '.join(FORMATS)}; "
        "or FILE.py:FUNCTION that reads it.",
        autocompletion=lambda: list(FORMATS),
        metavar="NAME",
    ),
]
ColumnsOption = Annotated[
    str | None,
    typer.Option(
        "--columns",
        help="The columns of any CSV: submit=COLUMN,duration=COLUMN, and gpus, cpus, memory, id, tenant, user, name, "
        "model, type, state; start and end in place of duration. A unit may follow: submit=ts:ms.",
        metavar="NAME=COLUMN,...",
    ),
]
SkipOption = Annotated[
    bool, typer.Option("--skip-bad-lines", help="Leave out lines that are wrong instead of stopping.")
]

STDOUT = "-"
"""The path that means the standard output."""
BARS = "▁▂▃▄▅▆▇█"


def _examples(*lines: str) -> str:
    """The epilogue of a command's help, with its line breaks."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


@app.command(
    "describe",
    epilog=_examples("rota trace describe philly.csv", "rota trace describe a.csv b.csv.gz -o json"),
)
def describe_command(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Traces, compressed or not.")],
    format: FormatOption = None,
    columns: ColumnsOption = None,
    skip_bad_lines: SkipOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Describe a trace: jobs, sizes, run times, outcomes and the load over time."""
    records: list[dict[str, object]] = []
    for path in files:
        workload = _read(path, format, skip_bad_lines, columns)
        records.append(_record(workload, describe(workload)))
    if output is not OutputFormat.TABLE:
        emit(records, [], output)
        return
    for number, record in enumerate(records):
        if number:
            echo()
        _print_tables(record)


@app.command(
    epilog=_examples(
        "rota trace convert philly.csv philly.parquet",
        "rota trace convert sacct.txt jobs.jsonl --format slurm --skip-bad-lines",
        "rota trace convert log.csv jobs.csv --columns submit=ts,duration=run_time,gpus=n_gpu",
    ),
)
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="The trace to read; - is the standard input.")],
    target: Annotated[
        Path, typer.Argument(metavar="OUT", help="Where to write: .parquet, .csv or .jsonl; - prints CSV.")
    ],
    format: FormatOption = None,
    columns: ColumnsOption = None,
    skip_bad_lines: SkipOption = False,
) -> None:
    """Read a trace of any format and write it in Rota's own."""
    workload = _read(source, format, skip_bad_lines, columns)
    _write(workload, target)


@app.command(
    "generate",
    epilog=_examples(
        "rota trace generate philly-like jobs.parquet --jobs 10000 --seed 1",
        "rota trace generate mixed jobs.csv --jobs 500 --seed 7 --gpus 64 --load 1.1",
        "rota trace generate philly-like jobs.csv --gpus 64 --elastic 1 --deadlines 0.5",
    ),
)
def generate_command(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help=f"What is in it: {', '.join(DESCRIPTIONS)}.",
            autocompletion=lambda: list(DESCRIPTIONS),
        ),
    ],
    target: Annotated[
        Path, typer.Argument(metavar="OUT", help="Where to write: .parquet, .csv or .jsonl; - prints CSV.")
    ],
    jobs: Annotated[int, typer.Option("--jobs", help="How many jobs.")] = 1000,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same trace.")] = 0,
    gpus: Annotated[int, typer.Option("--gpus", help="GPUs of the cluster it is meant for.")] = DEFAULT_GPUS,
    load: Annotated[
        float, typer.Option("--load", help="Mean demand over the span of arrivals, as a share of those GPUs.")
    ] = DEFAULT_LOAD,
    elastic: Annotated[
        float, typer.Option("--elastic", help="Share of the jobs whose number of tasks may be chosen, 0 to 1.")
    ] = 0.0,
    deadlines: Annotated[
        float, typer.Option("--deadlines", help="Share of the jobs that have a deadline, 0 to 1.")
    ] = 0.0,
) -> None:
    """Generate a synthetic trace of a kind, size and load."""
    with progress(f"generating {jobs} jobs"):
        workload = generate(kind, jobs=jobs, seed=seed, gpus=gpus, load=load, elastic=elastic, deadlines=deadlines)
    _write(workload, target)


@app.command(
    "transform",
    epilog=_examples(
        "rota trace transform philly.csv busy.parquet gpus=1..8 time=2d..9d load=0.9 --gpus 64",
        "rota trace transform pods.csv small.csv sample=0.1 types=any tenants=4 --seed 1",
        "rota trace transform a.csv both.csv merge=b.csv clip=1m..7d",
        "rota trace transform philly.csv - gpus=1..8 | rota trace transform - busy.csv load=0.9 --gpus 64",
        "rota trace transform --steps",
    ),
)
def transform_command(
    source: Annotated[
        Path | None, typer.Argument(metavar="IN", help="The trace to read; - is the standard input.")
    ] = None,
    target: Annotated[
        Path | None, typer.Argument(metavar="OUT", help="Where to write: .parquet, .csv or .jsonl; - prints CSV.")
    ] = None,
    steps: Annotated[
        list[str] | None, typer.Argument(metavar="STEP...", help="Steps as NAME=VALUE, applied one after the other.")
    ] = None,
    format: FormatOption = None,
    columns: ColumnsOption = None,
    skip_bad_lines: SkipOption = False,
    gpus: Annotated[int | None, typer.Option("--gpus", help="Devices of the cluster, for load=F.", min=1)] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of sample=F.")] = 0,
    list_steps: Annotated[bool, typer.Option("--steps", help="List the steps.")] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Make a trace of another by small steps: scale the load, cut, sample, clip, merge, rename."""
    from rota.traces.steps import STEPS, StepContext, transform

    if list_steps:
        rows = [{"step": f"{name}={step.value}", "what": step.summary} for name, step in STEPS.items()]
        emit(rows, [Column(key="step"), Column(key="what", title="effect")], output)
        return
    if source is None or target is None or not steps:
        raise RotaError("state IN, OUT and at least one step, such as load=0.9; --steps lists them")
    if target.exists() and target.samefile(source):
        raise RotaError(f"{target} is both IN and OUT, and would be lost; write to another file")
    context = StepContext(
        seconds=_seconds, read=lambda path: read_trace(path, skip_bad_lines=skip_bad_lines), devices=gpus, seed=seed
    )
    _write(transform(_read(source, format, skip_bad_lines, columns), steps, context), target)


def _seconds(text: str) -> float:
    from rota.files.quantities import NotAQuantity, parse_duration

    try:
        return parse_duration(text)
    except NotAQuantity as error:
        raise RotaError(str(error)) from None


def _read(path: Path, format: str | None, skip_bad_lines: bool, columns: str | None = None) -> Workload:
    if columns is not None and format is not None:
        raise RotaError(
            f"--columns names the columns of any CSV, and --format {format} is a known form; give one of them"
        )
    with progress(f"reading {path}"):
        if columns is not None:
            workload = read_columns(path, parse_columns(columns), skip_bad_lines=skip_bad_lines)
        else:
            workload = read_trace(path, format=format, skip_bad_lines=skip_bad_lines)
    if workload.skipped:
        _note(f"{path}: {_several(workload.skipped, 'bad line')} skipped")
    if workload.left_out:
        _note(f"{path}: {_several(workload.left_out, 'job')} left out: no whole run")
    return workload


def _write(workload: Workload, target: Path) -> None:
    if str(target) == STDOUT:
        sys.stdout.buffer.write(as_csv(workload))
        sys.stdout.flush()
        return
    with progress(f"writing {target}"):
        write_trace(workload, target)
    _note(f"{target}: {_several(len(workload.submissions), 'job')} written")


def _several(count: int, what: str) -> str:
    return f"{human.count(count)} {what}{'' if count == 1 else 's'}"


def _note(message: str) -> None:
    echo(f"note: {message}", err=True)


def _record(workload: Workload, found: Description) -> dict[str, object]:
    """The record for programs: every number, with its source."""
    return {
        "trace": workload.source,
        "format": workload.format,
        **asdict(found),
        "skipped": workload.skipped,
        "left_out": workload.left_out,
    }


def _print_tables(record: Mapping[str, Any]) -> None:
    """Print a summary, sizes, run times, and the load as a row of bars."""
    header = [Column(key="what", title="trace"), Column(key="value", title=record["trace"])]
    emit(_summary(record), header, OutputFormat.TABLE)
    echo()
    emit(record["sizes"], _SIZE_COLUMNS, OutputFormat.TABLE)
    echo()
    is_timed = record["work_unit"] == "s"
    show = human.duration if is_timed else human.count
    columns = [Column(key=name, show=show, right=True) for name in record["work"]]
    row = {"what": "run time" if is_timed else "steps", **record["work"]}
    emit([row], [Column(key="what", title=" "), *columns], OutputFormat.TABLE)
    if record["load_gpus"]:
        echo()
        _print_load(record["load_gpus"], record["bin_s"])


_SIZE_COLUMNS = (
    Column(key="gpus", title="GPUs", right=True),
    Column(key="jobs", show=human.count, right=True),
    Column(key="job_share", title="of jobs", show=human.percent, right=True),
    Column(key="gpu_time_share", title="of GPU time", show=human.percent, right=True),
)


def _summary(record: Mapping[str, Any]) -> list[dict[str, object]]:
    jobs = record["jobs"]
    ends = record["outcomes"].items()
    rows: list[tuple[str, str]] = [
        ("format", record["format"]),
        ("jobs", human.count(jobs)),
        ("span", human.duration(record["span_s"])),
        ("tenants", human.count(record["tenants"])),
        ("users", human.count(record["users"]) if record["users"] else "not in the trace"),
        ("outcomes", ", ".join(f"{name} {human.percent(count / jobs)}" for name, count in ends)),
    ]
    if record["gpu_hours"] is not None:
        rows.append(("GPU-hours", f"{record['gpu_hours']:,.1f}"))
    if record["offered_gpus"] is not None:
        rows.append(("offered load", f"{record['offered_gpus']:,.1f} GPUs (GPU time over span)"))
    return [{"what": what, "value": value} for what, value in rows]


def _print_load(load_gpus: Sequence[float], bin_s: float) -> None:
    most = max(load_gpus)
    echo(f"GPUs wanted if every job started at once, {human.duration(bin_s)} a bar")
    echo(f"{bars(load_gpus)}  at most {human.count(most)}, at least {human.count(min(load_gpus))}")


def bars(values: Sequence[float]) -> str:
    """Numbers as a row of bars; the highest is full, and only 0 is blank."""
    most = max(values)
    if not most > 0:
        return " " * len(values)
    return "".join(BARS[min(7, int(8 * value / most))] if value > 0 else " " for value in values)
