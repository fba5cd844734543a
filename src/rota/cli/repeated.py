"""Options that take one value and are given twice: refused, as the last would win without a word."""

from __future__ import annotations

from collections.abc import Sequence

from typer.core import TyperCommand, TyperGroup

from rota.core.errors import RotaError


def refuse_repeated(command: TyperCommand | TyperGroup, args: Sequence[str]) -> None:
    """Raise a `RotaError` for an option of one value that the arguments give more than once."""
    single = {
        name: param.opts[0]
        for param in command.params
        if param.param_type_name == "option" and not getattr(param, "multiple", False) and not _is_flag(param)
        for name in param.opts
    }
    found: dict[str, list[str]] = {}
    at = 0
    while at < len(args) and args[at] != "--":
        name, equals, value = args[at].partition("=")
        if name in single:
            if not equals:
                at += 1
                value = args[at] if at < len(args) else ""
            found.setdefault(single[name], []).append(value)
        at += 1
    for name, values in found.items():
        if len(values) > 1:
            raise RotaError(
                f"{name} is given {len(values)} times ({', '.join(values)}) and takes one value; give it once, "
                "or compare the values with `rota experiment`"
            )


def _is_flag(param: object) -> bool:
    return bool(getattr(param, "is_flag", False))
