from __future__ import annotations

from pathlib import Path

from rota.cli.study.trace import app
from rota.traces import FORMATS
from rota.traces.generators import DESCRIPTIONS
from rota.traces.readers.own_schema import COLUMNS

PAGE = (Path(__file__).parents[2] / "docs/reference/traces.md").read_text()


def test_every_format_has_a_heading() -> None:
    assert [name for name in FORMATS if f"### `{name}`\n" not in PAGE] == []


def test_every_column_and_every_kind_is_explained() -> None:
    assert [name for name in COLUMNS if f"`{name}`" not in PAGE] == []
    assert [name for name in DESCRIPTIONS if f"| `{name}` |" not in PAGE] == []


def test_every_command_has_a_heading() -> None:
    names = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]

    assert [name for name in names if f"### `rota trace {name} " not in PAGE] == []
    assert len(names) == 4
