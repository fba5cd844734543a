"""The rules that keep the rooms apart; DESIGN's picture holds as long as these pass."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
SOURCE = REPOSITORY / "src" / "rota"
CORE = sorted((SOURCE / "core").rglob("*.py"))
OUTSIDE_CLI = [path for path in sorted(SOURCE.rglob("*.py")) if SOURCE / "cli" not in path.parents]

CLOCKS_AND_CHANCE = frozenset({"datetime", "os", "random", "secrets", "time", "uuid"})


def place(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def imported(tree: ast.AST) -> Iterator[str]:
    """The top-level packages that a module imports; what only the type checker sees is left out."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.Import():
                yield from (alias.name.partition(".")[0] for alias in node.names)
            case ast.ImportFrom():
                yield "rota" if node.level else str(node.module).partition(".")[0]
        yield from imported(node)


def test_imports_point_inward() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"]

    told = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)

    assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.parametrize("path", CORE, ids=place)
def test_core_needs_the_standard_library_and_numpy_only(path: Path) -> None:
    packages = set(imported(ast.parse(path.read_text(encoding="utf-8"))))

    assert packages - sys.stdlib_module_names - {"numpy", "rota"} == set()


@pytest.mark.parametrize("path", CORE, ids=place)
def test_core_reads_no_clock_environment_or_chance(path: Path) -> None:
    packages = set(imported(ast.parse(path.read_text(encoding="utf-8"))))

    assert packages & CLOCKS_AND_CHANCE == set()


@pytest.mark.parametrize("path", OUTSIDE_CLI, ids=place)
def test_only_the_command_line_prints(path: Path) -> None:
    prints = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]

    assert prints == []
