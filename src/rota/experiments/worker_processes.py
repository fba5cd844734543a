"""Processes that do not import the program that starts them: an experiment may be called from any script or notebook.

A process of `spawn` imports the caller's main module, to find what it is to run. What runs here is always Rota's own,
and a script without `if __name__ == "__main__"` would begin again in every process.
"""

from __future__ import annotations

import multiprocessing.context
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class _WorkerProcess(multiprocessing.context.SpawnProcess):
    """A spawned process whose main module is empty."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802 # the hook by which a context starts a process
        with _without_main_module():
            return multiprocessing.context.SpawnProcess._Popen(process_obj)


class WorkerContext(multiprocessing.context.SpawnContext):
    """The context of a pool of such processes."""

    Process = _WorkerProcess


@contextmanager
def _without_main_module() -> Iterator[None]:
    """Let the main module of this process be an empty one, for as long as a process is started."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
