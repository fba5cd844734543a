"""Journals as files: they are read back as written, and broken ones are refused with the line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders import World, node, on, start
from rota.core.errors import RotaError
from rota.core.messages.events import JobArrived, NodeAdded
from rota.core.messages.reasons import ReasonCode
from rota.core.model.cluster import Cluster
from rota.core.model.job import JobId
from rota.scenario import Scenario
from rota.store.journal import JournalHeader, JournalReader, JournalWriter

TWO = Cluster.uniform(("gpu", 2, 1))
HEADER = JournalHeader(scenario=Scenario(policies=("fifo",), placement="consolidate", cluster=TWO), about="a test")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal of three steps: a start, a wait, and a node that lets the waiting job start."""
    path = tmp_path / "run.journal"
    with JournalWriter(path, HEADER) as journal:
        world = World(of=TWO, policy="fifo", journal=journal)
        world.submit("first", gpus=1, workers=2)
        world.submit("second", gpus=2)
        world.pass_s(0.1)
        world.step(NodeAdded(node("n3", 2)))
    return path


def test_journal_is_read_back_as_it_was_written(path: Path) -> None:
    reader = JournalReader(path)
    steps = list(reader.steps())

    assert reader.header == HEADER
    assert [step.number for step in steps] == [0, 1, 2]
    assert [step.now_s for step in steps] == [0.0, 0.0, 0.1]
    assert isinstance(steps[0].events[0], JobArrived)
    assert steps[0].decisions == (start("first", on("n1", 1), on("n2", 1)),)
    assert [(name, reason.code) for name, reason in steps[1].waits] == [(JobId("second"), ReasonCode.NEVER_FITS)]
    assert steps[2].events == (NodeAdded(node("n3", 2)),)
    assert steps[2].decisions == (start("second", on("n3", 2)),)


def test_one_step_is_one_line_of_plain_json(path: Path) -> None:
    lines = path.read_text().splitlines()

    assert len(lines) == 4
    assert json.loads(lines[1])["out"] == [
        {"order": "start", "job_id": "first", "on": [["n1", [0], 1, 0, 1000], ["n2", [0], 1, 0, 1000]]}
    ]


def edit(path: Path, line: int, **fields: object) -> None:
    lines = path.read_text().splitlines()
    lines[line - 1] = json.dumps(json.loads(lines[line - 1]) | fields)
    path.write_text("\n".join(lines) + "\n")


def test_gap_is_refused(path: Path) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], *lines[3:]]))

    with pytest.raises(RotaError, match=r"run.journal:3: step 2 follows 0; there is a gap"):
        list(JournalReader(path).steps())


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (2, {"in": [{"event": "no-such-event"}]}),
        (2, {"in": [{"event": "arrived", "job": {"id": ""}}]}),
        (2, {"in": [{"event": "arrived", "job": {"id": "a", "roles": [["no", "role"]]}}]}),
        (2, {"in": 5}),
        (3, {"out": [{"order": "start", "job_id": "x", "on": [["nowhere", [0], 1, 0, 1000]]}]}),
        (4, {"waits": [["x", {"code": "no-such-code"}]]}),
    ],
    ids=["event", "job", "role", "events", "node", "reason"],
)
def test_broken_step_is_refused_with_its_line(path: Path, line: int, fields: dict[str, object]) -> None:
    edit(path, line, **fields)

    with pytest.raises(RotaError, match=rf"run.journal:{line}: a broken step"):
        list(JournalReader(path).steps())


@pytest.mark.parametrize(
    ("tail", "told"),
    [
        (b'{"n":3,"t":', "the line is cut off: the run, or the copy of its journal, was inter"),
        (b"\xff\xfe\n", "a broken step"),
    ],
    ids=["torn", "not text"],
)
def test_line_that_can_not_be_read_is_refused(path: Path, tail: bytes, told: str) -> None:
    path.write_bytes(path.read_bytes() + tail)

    with pytest.raises(RotaError, match=rf"run.journal:5: {told}"):
        list(JournalReader(path).steps())


@pytest.mark.parametrize("text", ["", "{}", "[1]", "hello", "7"])
def test_file_that_is_no_journal_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x"
    path.write_text(text)

    with pytest.raises(RotaError, match="this is not a journal"):
        JournalReader(path)


def test_other_version_is_refused(path: Path) -> None:
    edit(path, 1, rota_journal=99)

    with pytest.raises(RotaError, match="version is 99; this Rota reads 1"):
        JournalReader(path)


@pytest.mark.parametrize("fields", [{"cluster": []}, {"cluster": [{"devices": 3}]}, {"cluster": 5}])
def test_broken_header_is_refused(path: Path, fields: dict[str, object]) -> None:
    edit(path, 1, **fields)

    with pytest.raises(RotaError, match=r"run\.journal:1: a broken header"):
        JournalReader(path)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RotaError, match="can't be read"):
        JournalReader(tmp_path / "none")
