"""Rota: one scheduling engine for deep-learning jobs, in a simulator, on one machine and on Kubernetes.

The front door for studies: `rota.simulate`, `rota.experiment`, `rota.read_trace`, `rota.generate`, `rota.policies`.
Each is imported when it is first used, so that `import rota` costs nothing.
"""

import importlib as _importlib

__version__ = "0.1.0"

_FRONT_DOOR = {
    "ExperimentResult": "rota.experiments.front_door",
    "SimulationResult": "rota.experiments.front_door",
    "experiment": "rota.experiments.front_door",
    "generate": "rota.experiments.front_door",
    "read_trace": "rota.experiments.front_door",
    "simulate": "rota.experiments.front_door",
    "RotaError": "rota.core.errors",
    "Workload": "rota.traces.workload",
}

__all__ = ["__version__", "policies", *sorted(_FRONT_DOOR)]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    """Import a name of the front door when it is first used."""
    if name == "policies":
        return _importlib.import_module("rota.policies")
    if name not in _FRONT_DOOR:
        raise AttributeError(f"module 'rota' has no attribute {name!r}")
    found = globals()[name] = getattr(_importlib.import_module(_FRONT_DOOR[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
