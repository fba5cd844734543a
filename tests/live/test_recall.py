"""After a restart under another policy nothing is left of what the first one remembered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.live.loop.policy_memory import PolicyMemory
from rota.store.database import open_database
from rota.store.records import Records, WriteBatch

STANDING = {"state": "waiting", "memo": [1, 20.0, 0.0, 0.0, 0.0]}


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    kept = Records(open_database(tmp_path / "rota.db"))
    yield kept
    kept.close()


def test_policy_finds_its_own_memory_again_whatever_its_options(records: Records) -> None:
    records.begin_segment({"policy": "gandiva"})
    records.begin_segment({"policy": "tiresias:thresholds=10/20"})
    records.write(WriteBatch(memory='{"sizes": [3]}'))()

    recall = PolicyMemory(records, "tiresias")

    assert (recall.memory(), recall.standing(STANDING)) == ({"sizes": [3]}, STANDING)


@pytest.mark.parametrize("before", [None, "tiresias"])
def test_memory_of_another_policy_is_not_taken_up(records: Records, before: str | None) -> None:
    if before is not None:
        records.begin_segment({"policy": before})
    records.write(WriteBatch(memory='{"sizes": [3]}'))()

    recall = PolicyMemory(records, "gandiva")

    assert (recall.memory(), recall.standing(STANDING)) == (None, {"state": "waiting"})
