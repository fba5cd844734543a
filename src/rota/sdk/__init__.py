"""The SDK for training scripts, and the client of the command line. Importing it is cheap.

    import rota.sdk

    for batch in (run := rota.sdk.steps(loader)):
        loss = train(batch)
        run.report(loss=loss)
        if run.should_save:
            save_checkpoint(run.step)
            run.saved()
    rota.sdk.saving()
    save_result()

Outside of a job these calls do nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.sdk.checkpoints import CheckpointLost, Checkpoints
    from rota.sdk.client import Client
    from rota.sdk.functions import Call, submit
    from rota.sdk.iteration_shift import IterationShift
    from rota.sdk.reports import params, report
    from rota.sdk.sharded_checkpoints import ShardedCheckpoints
    from rota.sdk.training import Steps, saving, steps

__all__ = [
    "Call",
    "CheckpointLost",
    "Checkpoints",
    "Client",
    "IterationShift",
    "ShardedCheckpoints",
    "Steps",
    "params",
    "report",
    "saving",
    "steps",
    "submit",
]

_MODULES = {
    "Call": "rota.sdk.functions",
    "CheckpointLost": "rota.sdk.checkpoints",
    "Checkpoints": "rota.sdk.checkpoints",
    "Client": "rota.sdk.client",
    "IterationShift": "rota.sdk.iteration_shift",
    "ShardedCheckpoints": "rota.sdk.sharded_checkpoints",
    "Steps": "rota.sdk.training",
    "params": "rota.sdk.reports",
    "report": "rota.sdk.reports",
    "saving": "rota.sdk.training",
    "steps": "rota.sdk.training",
    "submit": "rota.sdk.functions",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'rota.sdk' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_MODULES[name]), name)
