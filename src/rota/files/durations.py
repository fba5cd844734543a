"""A duration as a field of files: seconds, or an amount with a unit such as `90s` or `1h30m`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from rota.files.quantities import NotAQuantity, parse_duration


def _seconds(value: object) -> float:
    try:
        return parse_duration(value)
    except NotAQuantity as error:
        raise ValueError(str(error)) from error


Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0)]
