"""`rota schema`: the JSON schemas of the files that people write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from rota.cli.completion import file_kinds
from rota.cli.render import Column, OutputFormat, OutputOption, emit
from rota.cli.terminal import echo


def schema(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="[KIND]", help="A kind of file; without one, they are listed.", autocompletion=file_kinds
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write all of them into a folder, as KIND.schema.json.", metavar="DIR")
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print the JSON schema of a kind of file, for editors and for checks in pipelines.

    Editors that use yaml-language-server take it from the first line of a file:
    # yaml-language-server: $schema=job.schema.json

    Examples:

      rota schema

      rota schema job > job.schema.json

      rota schema --out schemas
    """
    from rota.cli.file_schemas import KINDS, FileKind, file_schema

    experiment = FileKind(
        name="experiment", target="rota.experiments.experiment_file:ExperimentFile", about="a grid of simulations"
    )
    kinds = (*KINDS, experiment)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        for each in kinds if kind is None else [each for each in kinds if each.name == kind]:
            text = json.dumps(file_schema(each.name, kinds), indent=2)
            (out / f"{each.name}.schema.json").write_text(f"{text}\n", encoding="utf-8")
    elif kind is not None:
        echo(json.dumps(file_schema(kind, kinds), indent=2), lines=True)
    else:
        rows = [{"kind": each.name, "about": each.about} for each in kinds]
        emit(rows, (Column(key="kind"), Column(key="about")), output)
