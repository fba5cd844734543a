from __future__ import annotations

import contextlib
import io
from collections.abc import Callable

import pytest

from policies.user_policies import HEAD, TRACE
from rota.cli.main import status


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[int, list[str]]]:
    """Simulate a small workload under the policy `p` of a file with this text: the exit status and what is printed."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "jobs.csv").write_text(TRACE)

    def simulate(text: str) -> tuple[int, list[str]]:
        (folder / "mine.py").write_text(HEAD + text)
        printed = io.StringIO()
        arguments = ["sim", "--trace", "jobs.csv", "--cluster", "gpu=4/2", "--policy", "./mine.py:p"]
        with contextlib.chdir(folder), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            code = status(arguments)
        return code, printed.getvalue().splitlines()

    return simulate
