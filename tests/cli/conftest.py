from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest

import forked

Rota = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def rota() -> Rota:
    """Runs `rota` as a process of its own, as a shell would."""

    def call(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return forked.run(args, env=os.environ | environment)

    return call
