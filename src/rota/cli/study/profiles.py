"""`rota profiles`: the built-in catalogue of speeds with its sources, or the contents of a file of speeds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from rota.cli import human
from rota.cli.render import Column, OutputFormat, OutputOption, emit
from rota.cli.terminal import echo
from rota.core.errors import RotaError, did_you_mean
from rota.core.model.job import DeviceType
from rota.perf.profiles.catalogue import REFERENCE, Catalogue, catalogue, estimated
from rota.perf.profiles.profile_files import read_profiles
from rota.perf.profiles.speed_table import Profiles

COUNTS = (1, 2, 4, 8)
ESTIMATE = "estimate"
TOO_LARGE = "too large for its memory"


def profiles(
    model: Annotated[
        str | None, typer.Argument(help="Only this model: its speed on each type, with the source.")
    ] = None,
    types: Annotated[bool, typer.Option("--types", help="The device types instead of the models.")] = False,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="What a file of speeds holds, instead of the catalogue.", metavar="FILE"),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List models and device types with published speeds, and where each figure comes from.

    Examples:

      rota profiles

      rota profiles resnet50

      rota profiles --types

      rota profiles --file simulation_throughputs.json
    """
    if file is not None:
        if types or model is not None:
            raise RotaError("--file lists a whole file; give neither --types nor a model beside it")
        emit(_file_rows(read_profiles(file)), _FILE_COLUMNS, output)
        return
    book = catalogue()
    if model is not None:
        if types:
            raise RotaError(f"--types lists all types; leave out the model {model!r}")
        _one_model(book, model, output)
    elif types:
        emit(_type_rows(book), _TYPE_COLUMNS, output)
    else:
        emit(_model_rows(book), _MODEL_COLUMNS, output)


def _model_rows(book: Catalogue) -> list[dict[str, object]]:
    return [
        {
            "model": name,
            "title": entry.title,
            "unit": entry.unit,
            "batch": entry.batch,
            "parameters": entry.parameters,
            "gradient_bytes": entry.gradient_bytes,
            "published": len(entry.speeds),
            "v100_per_s": book.speed(name, REFERENCE, 1).samples_per_s,
            "v100_source": book.speed(name, REFERENCE, 1).source or ESTIMATE,
        }
        for name, entry in book.models.items()
    ]


def _type_rows(book: Catalogue) -> list[dict[str, object]]:
    return [
        {
            "type": name,
            "title": entry.title,
            "kind": entry.kind,
            "memory_gib": entry.memory_gib,
            "published": sum(name in model.speeds for model in book.models.values()),
            "resnet50_per_s": book.speed("resnet50", name, 1).samples_per_s,
        }
        for name, entry in book.types.items()
    ]


def _one_model(book: Catalogue, model: str, output: OutputFormat) -> None:
    if model not in book.models:
        raise RotaError(f"the catalogue has no model {model!r}; {did_you_mean(model, book.models)}")
    entry = book.models[model]
    rows = [_speed_row(book, model, kind) for kind in book.types]
    if output is not OutputFormat.TABLE:
        emit(rows, (), output)
        return
    echo(f"{model}: {entry.title}; {entry.unit} a second, a step is {entry.batch:,} {entry.unit} a device")
    if entry.parameters is not None and entry.parameters_source is not None:
        echo(
            f"{entry.parameters / 1e6:,.1f} million parameters ({book.sources[entry.parameters_source]}), "
            f"gradients of {(entry.gradient_bytes or 0) / 2**20:,.0f} MiB"
        )
    echo()
    emit([_marked(row) for row in rows], _SPEED_COLUMNS, output)
    echo()
    for source in dict.fromkeys(measured.source for measured in entry.speeds.values()):
        echo(f"{source}: {book.sources[source]}")
    filled = estimated()
    error = filled.error
    if error is not None:
        echo(
            f"{ESTIMATE}, ~: from the rest of the catalogue ({filled.choice}); held-out error {error.median:.0%} "
            f"(median), {error.p90:.0%} (nine in ten)"
        )


def _speed_row(book: Catalogue, model: str, kind: DeviceType) -> dict[str, object]:
    speeds = {count: book.speed(model, kind, count) for count in COUNTS}
    measured = book.models[model].speeds.get(kind)
    source = TOO_LARGE if not book.fits(model, kind) else ESTIMATE if measured is None else measured.source
    row: dict[str, object] = {"type": kind}
    row |= {f"on_{count}": speed.samples_per_s for count, speed in speeds.items()}
    row["relative"] = speeds[1].samples_per_s / book.speed(model, REFERENCE, 1).samples_per_s
    row["source"] = source
    row["published_for"] = [] if measured is None else sorted(measured.by_devices)
    return row


def _marked(row: dict[str, Any]) -> dict[str, Any]:
    """A row for people: speeds as text, with a mark on estimates."""
    texts = {}
    for count in COUNTS:
        speed = row[f"on_{count}"]
        is_guess = speed and count not in row["published_for"]
        texts[f"on_{count}"] = f"{'~' if is_guess else ''}{_per_s(speed)}"
    return row | texts


def _file_rows(found: Profiles) -> list[dict[str, object]]:
    types = list(dict.fromkeys(kind for kind, _, _ in found.steps_per_s))
    sizes = dict.fromkeys((model, devices) for _, model, devices in found.steps_per_s)
    mates = Counter((model, devices) for _, model, _, devices in found.pairs)
    return [
        {
            "model": model,
            "devices": devices,
            "steps_per_s": {kind: found.rate(kind, model, devices) for kind in types},
            "scattered": sum((kind, model, devices) in found.scattered for kind in types),
            "pairs": mates[(model, devices)],
        }
        for model, devices in sizes
    ]


def _per_s(value: float) -> str:
    return "-" if not value else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


_MODEL_COLUMNS = (
    Column(key="model"),
    Column(key="title", title="what"),
    Column(key="parameters", show=lambda count: "-" if count is None else f"{count / 1e6:,.1f} M", right=True),
    Column(key="published", title="types published", right=True),
    Column(key="v100_per_s", title="per s on a v100", show=_per_s, right=True),
    Column(key="unit"),
    Column(key="v100_source", title="source"),
)
_TYPE_COLUMNS = (
    Column(key="type"),
    Column(key="title", title="what"),
    Column(key="kind"),
    Column(key="memory_gib", title="memory", show=lambda gib: "-" if gib is None else f"{gib:g} GiB", right=True),
    Column(key="published", title="models published", show=human.count, right=True),
    Column(key="resnet50_per_s", title="resnet50 images/s", show=_per_s, right=True),
)
_SPEED_COLUMNS = (
    Column(key="type"),
    *(Column(key=f"on_{count}", title=f"on {count}", right=True) for count in COUNTS),
    Column(key="relative", title="of v100", show=lambda part: f"{part:.2f}", right=True),
    Column(key="source"),
)
_FILE_COLUMNS = (
    Column(key="model"),
    Column(key="devices", right=True),
    Column(
        key="steps_per_s",
        title="steps/s",
        show=lambda speeds: ", ".join(
            f"{kind} {'-' if rate is None else f'{rate:g}'}" for kind, rate in speeds.items()
        ),
    ),
    Column(key="scattered", title="over nodes", right=True),
    Column(key="pairs", right=True),
)
