"""`rota sim --replay`: check that a journal's events lead to the same decisions again."""

from __future__ import annotations

from pathlib import Path

from rota.cli.render import Column, OutputFormat, emit, progress
from rota.cli.terminal import echo
from rota.drivers.simulator.replay import replay

COLUMNS = (
    Column(key="journal"),
    Column(key="policy"),
    Column(key="steps", right=True),
    Column(key="decisions", right=True),
    Column(key="identical"),
)


def replay_journal(path: Path, output: OutputFormat) -> int:
    """Replay a journal; 0 if every decision was the same, 1 if not."""
    with progress("replaying") as bar:
        outcome = replay(path, progress=bar.update)
    row: dict[str, object] = {
        "journal": str(path),
        "policy": outcome.policy,
        "steps": outcome.steps,
        "decisions": outcome.decisions,
        "identical": outcome.mismatch is None,
    }
    if outcome.mismatch is not None:
        row["first_difference"] = {
            "step": outcome.mismatch.step,
            "now_s": outcome.mismatch.now_s,
            "recorded": list(outcome.mismatch.recorded),
            "decided": list(outcome.mismatch.decided),
        }
    emit([row], COLUMNS, output)
    if outcome.mismatch is None:
        return 0
    different = outcome.mismatch
    echo(
        f"error: step {different.step} at {different.now_s:g} s: the journal has "
        f"{', '.join(different.recorded) or 'no decision'}; "
        f"now the policy decides {', '.join(different.decided) or 'nothing'}",
        err=True,
    )
    return 1
