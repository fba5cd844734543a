"""Shells complete ids of jobs of the running manager, and names of policies."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from managers import Manager

ROTA = [sys.executable, "-c", "import sys; sys.argv[0] = 'rota'; from rota.cli.main import run; run()"]


def completed(words: str, state: Path) -> str:
    """Return what the completion of bash offers for a line."""
    asked = {"_ROTA_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    env = {**os.environ, **asked, "XDG_STATE_HOME": str(state)}
    done = subprocess.run(ROTA, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.slow
def test_policies_are_completed(tmp_path: Path) -> None:
    assert completed("rota sim --policy tir", tmp_path).split() == ["tiresias"]


@pytest.mark.slow
def test_nothing_is_offered_and_nothing_printed_without_a_manager(tmp_path: Path) -> None:
    assert completed("rota why ", tmp_path).split() == []


@pytest.mark.slow
def test_ids_of_jobs_are_completed(tmp_path: Path) -> None:
    manager = Manager(tmp_path, "--emulate", "gpu=2/2").start()
    try:
        manager.submit("sleep 600", name="first")
        manager.submit("sleep 600", name="second")

        offered = completed("rota why ", manager.folder / "state")
    finally:
        manager.clean_up()

    assert sorted(offered.split()) == ["1", "2"]
