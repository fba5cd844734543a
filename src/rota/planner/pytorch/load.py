"""Finds a model and its example inputs in a user's script: `script.py:name`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError, did_you_mean

INPUTS = "example_inputs"


def require_torch(user: str = "profiling a model") -> Any:
    """PyTorch, or one line that says how to get it."""
    try:
        import torch
    except ImportError as err:
        raise RotaError(f"{user} needs PyTorch; pip install 'rota[learn]'") from err
    return torch


def load_model(target: str) -> tuple[Any, tuple[Any, ...]]:
    """The module and its example inputs.

    The name is of a module, or of a function that returns one; either may come as a pair with the inputs. Inputs that
    are not part of it are taken from `example_inputs` of the script, a tuple or a function that returns one.
    """
    path, separator, name = target.rpartition(":")
    if not separator or not path or not name:
        raise RotaError(f"{target}: expected SCRIPT.py:NAME, as train.py:model")
    if not Path(path).exists():
        raise RotaError(f"{path}: no such file")
    torch = require_torch()
    script = _script(Path(path))
    if not hasattr(script, name):
        words = [word for word in vars(script) if not word.startswith("_")]
        raise RotaError(f"{path} has no {name!r}; {did_you_mean(name, words)}")
    found = getattr(script, name)
    if not isinstance(found, torch.nn.Module) and callable(found):
        found = _called(found, target)
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], torch.nn.Module):
        model, inputs = found
    else:
        model = found
        inputs = getattr(script, INPUTS, None)
        inputs = _called(inputs, f"{path}:{INPUTS}") if callable(inputs) else inputs
    if not isinstance(model, torch.nn.Module):
        raise RotaError(f"{target} is a {type(model).__name__}, not a torch.nn.Module or a function that returns one")
    if inputs is None:
        raise RotaError(f"{path} gives no inputs for {name!r}; return (model, inputs) or define {INPUTS}")
    return model, inputs if isinstance(inputs, tuple) else (inputs,)


def _called(function: Any, target: str) -> Any:
    """What a user's function returns; its failure is one line."""
    try:
        return function()
    except Exception as err:
        first = next(iter(str(err).splitlines()), "")
        raise RotaError(f"{target}() failed: {type(err).__name__}: {first}; it is called without arguments") from err


def _script(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise RotaError(f"{path} is not a Python script")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    try:
        spec.loader.exec_module(module)
    except Exception as err:
        raise RotaError(f"{path}: {type(err).__name__}: {err}") from err
    return module
