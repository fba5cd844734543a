"""Small runs whose journals are kept and compared byte for byte.

`make golden` regenerates them; explain each difference in the commit.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from golden.scenes import HERE, POLICIES, SCENES, file_name, write
from rota.drivers.simulator.replay import replay

JOURNALS = HERE / "journals"
RUNS = [(scene, policy) for scene in SCENES for policy in POLICIES]


@pytest.mark.parametrize(("scene", "policy"), RUNS)
def test_journal_is_as_it_was(scene: str, policy: str, tmp_path: Path, regenerate: bool) -> None:
    kept, made = JOURNALS / file_name(scene, policy), tmp_path / "journal"
    write(scene, policy, made)
    if regenerate:
        kept.write_bytes(made.read_bytes())

    assert made.read_text().splitlines() == kept.read_text().splitlines()
    assert made.read_bytes() == kept.read_bytes()


@pytest.mark.parametrize(("scene", "policy"), RUNS)
def test_kept_journal_replays(scene: str, policy: str) -> None:
    """The events that were written down, given to a fresh engine, make the same decisions."""
    outcome = replay(JOURNALS / file_name(scene, policy))

    assert outcome.mismatch is None
    assert outcome.steps > 20
    assert {row.end_s for row in outcome.history.jobs} != {None}


def test_no_journal_is_left_over() -> None:
    assert {path.name for path in JOURNALS.iterdir()} == {file_name(scene, policy) for scene, policy in RUNS}


def test_replay_tells_the_first_decision_that_differs(tmp_path: Path) -> None:
    lines = (JOURNALS / file_name("written", "fifo")).read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if '"start"' in line and number > 5)
    path = tmp_path / "changed.journal"
    lines[at] = lines[at].replace('"start"', '"resize"', 1)
    path.write_text("\n".join(lines) + "\n")

    mismatch = replay(path).mismatch

    assert mismatch is not None
    assert mismatch.step == at - 1
    assert "'start'" in mismatch.decided[0]
    assert "'resize'" in mismatch.recorded[0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["0", "4321"])
def test_order_of_hashing_does_not_matter(seed: str, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(HERE.parent)}
    subprocess.run([sys.executable, HERE / "scenes.py", tmp_path], env=environment, check=True, timeout=120)

    for scene, policy in RUNS:
        name = file_name(scene, policy)
        assert (tmp_path / name).read_bytes() == (JOURNALS / name).read_bytes()
