from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

Rota = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def rota() -> Rota:
    """Runs `rota` as a process of its own, as a shell would."""

    def call(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", "from rota.cli.main import run; run()", *args],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return call
