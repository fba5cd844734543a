"""The rules that keep packages apart and small; the picture in the architecture page holds as long as these pass."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
SOURCE = REPOSITORY / "src" / "rota"

CLOCKS_AND_CHANCE = frozenset({"datetime", "os", "random", "secrets", "time", "uuid"})
MOST_MODULES = 20
MOST_LINES = 400
MOST_LINES_OF_A_FUNCTION = 59
SAME_CLASSES: frozenset[str] = frozenset()
"""Names that several classes may have, because they mean the same thing."""


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the package by its path, parsed once."""
    paths = sorted(SOURCE.rglob("*.py"))
    return {path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


@cache
def nodes() -> list[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Call]]:
    """All classes, functions and calls of all modules, found in one walk."""
    return [
        (path, node)
        for path, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Call)
    ]


def core() -> Iterator[tuple[str, set[str]]]:
    """The modules of the core, each with the top-level packages that it imports."""
    for path, tree in modules().items():
        if path.startswith("core/"):
            yield path, set(imported(tree))


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


def test_imports_follow_the_contracts() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"]

    checked = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)

    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.slow
def test_core_needs_the_standard_library_and_numpy_only() -> None:
    known = sys.stdlib_module_names | {"numpy", "rota"}

    assert {path: packages - known for path, packages in core() if packages - known} == {}


def test_core_reads_no_clock_environment_or_chance() -> None:
    found = {path: packages & CLOCKS_AND_CHANCE for path, packages in core() if packages & CLOCKS_AND_CHANCE}

    assert found == {}


def test_only_the_core_changes_the_record_of_a_job() -> None:
    record = modules()["core/state/job_record.py"]
    slots = next(
        ast.literal_eval(node.value)
        for node in ast.walk(record)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__"
    )
    writes = [
        f"{path}:{node.lineno} {ast.unparse(node)}"
        for path, tree in modules().items()
        if not path.startswith("core/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr in slots
        if ast.unparse(node.value).endswith(("live", "entry[1]"))
    ]

    assert writes == []


@pytest.mark.slow
def test_only_the_command_line_prints() -> None:
    prints = [
        f"{path}:{node.lineno}"
        for path, node in nodes()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
        if not path.startswith("cli/")
    ]

    assert prints == []


def test_yaml_is_read_in_one_place() -> None:
    """Every other reader would have to know about aliases without end, base 60 and numbers without end."""
    readers = {"load", "load_all", "safe_load", "safe_load_all", "full_load", "unsafe_load", "parse", "compose", "scan"}
    found = {
        path
        for path, node in nodes()
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "yaml"
        and node.func.attr in readers
    }
    loaders = {
        path
        for path, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute | ast.Constant)
        and str(node.attr if isinstance(node, ast.Attribute) else node.value).endswith("Loader")
        and "yaml" in imported(tree)
    }

    assert found == set()
    assert loaders == {"files/yaml_input.py"}


def test_no_folder_holds_too_many_modules() -> None:
    folders = Counter(str(Path(path).parent) for path in modules() if not path.endswith("__init__.py"))

    assert {folder: count for folder, count in folders.items() if count > MOST_MODULES} == {}


def test_no_module_is_too_long() -> None:
    lengths = {path: (SOURCE / path).read_text(encoding="utf-8").count("\n") for path in modules()}

    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES} == {}


def test_no_function_is_too_long() -> None:
    long = {
        f"{path}:{node.name}"
        for path, node in nodes()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > MOST_LINES_OF_A_FUNCTION
    }

    assert long == set()


def test_class_names_are_unique() -> None:
    places = defaultdict(list)
    for path, node in nodes():
        if isinstance(node, ast.ClassDef):
            places[node.name].append(path)

    assert {name: paths for name, paths in places.items() if len(paths) > 1 and name not in SAME_CLASSES} == {}


SIGNALS = frozenset({"kill", "killpg", "pidfd_send_signal", "pthread_kill", "tgkill"})
SENDS_SIGNALS = {"drivers/local/task_runner/processes.py", "drivers/local/task.py"}
"""Modules that signal processes: by a descriptor whose start time they compared."""
READS_THE_DATE = {
    "store/clock.py",
    "drivers/local/task_runner/clock.py",
    "drivers/kubernetes/api/sign_in.py",  # the expiry of a credential is a date
    "sdk/training.py",  # a report says when it was written
    "sdk/iteration_shift.py",  # turns of jobs on several machines are counted on the clock that these have in common
}


def calls_of(module: str, names: frozenset[str]) -> Iterator[tuple[str, int]]:
    """Where functions of a module of the standard library are used by name."""
    for path, tree in modules().items():
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(value=ast.Name(id=owner), attr=attr) if owner == module and attr in names:
                    yield path, node.lineno
                case ast.ImportFrom(module=owner) if owner == module and names & {each.name for each in node.names}:
                    yield path, node.lineno


def test_processes_are_signalled_by_descriptor_only() -> None:
    found = [*calls_of("os", SIGNALS), *calls_of("signal", SIGNALS)]

    assert {path for path, _ in found} == SENDS_SIGNALS
    assert not list(calls_of("os", frozenset({"kill", "killpg"})))


def test_the_date_is_read_in_the_clocks_only() -> None:
    """What counts seconds must not change when the date is set."""
    rooms = ("live/", "drivers/local", "drivers/kubernetes", "api/", "store/", "web/", "sdk/")
    found = {path for path, _ in calls_of("time", frozenset({"time", "time_ns"})) if path.startswith(rooms)}

    assert found == READS_THE_DATE
