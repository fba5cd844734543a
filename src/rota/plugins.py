"""Code of users: a function in a file (`./file.py:name`), or one that another package adds by entry point.

Placements, speed factors, metrics and trace readers are found here. Every fault of such code becomes one line that
names the code and what was wrong with it. Policies have a registry of their own and are loaded by the
same functions.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from numbers import Real
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from rota.core.errors import RotaError, did_you_mean, written

_OWN_FOLDER = Path(__file__).parent
_LIBRARY_FOLDERS = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginKind:
    """A kind of function that users may add."""

    what: str
    """What such a function is, in messages."""
    group: str
    """The entry point group of other packages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A user's function and the name by which messages call it."""

    kind: PluginKind
    spec: str
    function: Callable[..., Any]

    @property
    def name(self) -> str:
        """The function's name, or that of its entry point."""
        return self.spec.rpartition(":")[2]

    def call(self, *args: Any) -> Any:
        """Call the function; what it raises is the user's mistake."""
        with self.faults_named():
            return self.function(*args)

    def number(self, about: str, *args: Any) -> float:
        """Call the function for a finite number; `about` names what it was called for."""
        return self.as_number(about, self.call(*args))

    def as_number(self, about: str, found: object) -> float:
        """What the function returned, if it is a finite number."""
        number = _finite(found)
        if number is None:
            raise self.fault(f"for {about} it returned {_short(found)}; it must return a finite number")
        return number

    def fault(self, what: str) -> RotaError:
        """The error for something that is wrong with the function."""
        return RotaError(f"{self.kind.what} {self.spec}: {what}")

    @contextmanager
    def faults_named(self) -> Iterator[None]:
        """Turn whatever the user's code raises into one line that names it."""
        try:
            yield
        except (Exception, SystemExit) as error:  # the code is the user's: any fault of it is reported by its name
            if raised_by_rota(error):
                raise
            raise self.fault(f"it failed: {describe_error(error)}") from error


def is_file(spec: str) -> bool:
    """Whether a name means a function in a file."""
    return spec.partition(":")[0].endswith(".py")


def names_of(kind: PluginKind) -> list[str]:
    """The names that other packages add to a kind."""
    return sorted(point.name for point in entry_points(group=kind.group))


@cache
def find_plugin(kind: PluginKind, spec: str) -> Plugin | None:
    """The function that `FILE.py:NAME` or an entry point's name means; None for a name that no package adds."""
    if is_file(spec):
        path, _, name = spec.partition(":")
        return Plugin(kind=kind, spec=spec, function=_from_file(kind, path, name))
    points = [point for point in entry_points(group=kind.group) if point.name == spec]
    return Plugin(kind=kind, spec=spec, function=_from_package(kind, points[0])) if points else None


def forget_loaded() -> None:
    """Load users' files again when they are next asked for: they may have been edited."""
    find_plugin.cache_clear()


def _from_package(kind: PluginKind, point: EntryPoint) -> Callable[..., Any]:
    where = f"{kind.what} {point.name} ({point.value})"
    return _checked(load_entry_point(point, where), where)


def _from_file(kind: PluginKind, path: str, name: str) -> Callable[..., Any]:
    where = f"{kind.what} file {path}"

    def wanted(value: object, module: ModuleType) -> bool:
        return callable(value) and value.__module__ == module.__name__

    return _checked(load_from_file(path, name, where, wanted), f"{where}: {name!r}")


def load_entry_point(point: EntryPoint, where: str) -> object:
    """What an entry point of another package means; `where` names it in messages."""
    try:
        return point.load()
    except (Exception, SystemExit) as error:  # the package is not ours: any fault of it is reported by its name
        raise RotaError(f"{where}: it can't be loaded: {describe_error(error)}") from error


def load_from_file(path: str, name: str, where: str, wanted: Callable[[object, ModuleType], bool]) -> object:
    """What a name means in a user's file; `wanted` tells which values a message may suggest instead."""
    if not name:
        raise RotaError(f"{where}: name the function, as {path}:FUNCTION")
    if not Path(path).is_file():
        raise RotaError(f"{where}: there is no such file")
    module = _module(path, where)
    found = vars(module).get(name)
    if found is None:
        known = [each for each, value in vars(module).items() if wanted(value, module)]
        raise RotaError(f"{where}: it has no {name!r}; {did_you_mean(name, known)}")
    return found


class _SourceLoader(SourceFileLoader):
    """Reads the file each time: kept bytecode is taken for current after an edit within the same second."""

    def get_code(self, fullname: str) -> CodeType:
        """Return what the file compiles to."""
        return self.source_to_code(self.get_data(self.path), self.path)


def _module(path: str, where: str) -> ModuleType:
    digest = hashlib.sha256(str(Path(path).resolve()).encode()).hexdigest()[:12]
    name = f"rota_plugin_{Path(path).stem}_{digest}"
    module_spec = importlib.util.spec_from_file_location(name, path, loader=_SourceLoader(name, path))
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_spec.name] = module
    try:
        module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the file is the user's: any fault of it is reported by its name
        if isinstance(error, RotaError):
            raise RotaError(f"{where}: {written(error, str)}") from error
        raise RotaError(f"{where}: it can't be loaded: {describe_error(error)}") from error
    return module


def _checked(found: object, where: str) -> Callable[..., Any]:
    if not callable(found):
        raise RotaError(f"{where} is {_short(found)}; it must be a function")
    return found


def _finite(found: object) -> float | None:
    """The value as a finite number; None if it is something else, or too large for a float."""
    if isinstance(found, bool) or not isinstance(found, Real):
        return None
    try:
        number = float(found)
    except Exception:  # too large for a float, or a number type of the user's that fails
        return None
    return number if math.isfinite(number) else None


def describe_error(error: BaseException) -> str:
    """An exception on one line: its type, its message and the line of the user's file that it comes from."""
    message = written(error, str)
    frames = [
        (Path(frame.filename), frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if not Path(frame.filename).is_relative_to(_OWN_FOLDER)
    ]
    files = [frame for frame in frames if not any(frame[0].is_relative_to(folder) for folder in _LIBRARY_FOLDERS)]
    place = ""
    if files or frames:
        path, line = files[-1] if files else frames[0]
        place = f" ({path.name}, line {line})"
    return f"{type(error).__name__}{': ' if message else ''}{message}{place}"


def raised_by_rota(error: BaseException) -> bool:
    """Whether an error is one of Rota's own; the code of a user may raise the same type."""
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, RotaError) and bool(frames) and Path(frames[-1].filename).is_relative_to(_OWN_FOLDER)


def _short(value: object) -> str:
    text = written(value) or f"a value of type {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
