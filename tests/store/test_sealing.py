"""Secrets rest encrypted: in rows that are written, and in those that an older Rota wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rota.core.errors import RotaError
from rota.store.database import open_database
from rota.store.records import Records, WriteBatch
from rota.store.sealing import KEY_FILE, Sealer, is_sealed, load_sealer, seal_stored

SPEC = json.dumps(
    {
        "run": "true",
        "env": {"PLAIN": "seen", "KEY": {"secret": "hunter2"}},
        "roles": {"ps": {"env": {"OTHER": {"secret": "swordfish"}}}},
    }
)


def row(spec: str = SPEC) -> dict[str, object]:
    return {
        "id": "1", "seq": 0, "name": "a", "tenant": "t", "owner": "ada", "account": None, "state": "waiting",
        "submitted_s": 0.0, "job": "{}", "spec": spec, "live": "{}", "attempt": 0, "failures": 0, "message": "",
        "started_s": None, "ended_s": None, "exit_code": None, "failure": None, "version": 0,
    }  # fmt: skip


def test_secrets_are_not_in_the_file_and_come_back_with_the_key(tmp_path: Path) -> None:
    engine = open_database(tmp_path / "rota.db")
    Records(engine, load_sealer(tmp_path)).write(WriteBatch(new_jobs=[row()]))()

    again = Records(engine, load_sealer(tmp_path))
    stored = again.live_jobs()[0]
    opened = json.loads(again.opened_spec(stored))
    engine.dispose()

    on_disk = b"".join(path.read_bytes() for path in tmp_path.glob("rota.db*"))
    assert b"hunter2" not in on_disk
    assert b"swordfish" not in on_disk
    assert b"seen" in on_disk
    assert opened == json.loads(SPEC)
    assert (tmp_path / KEY_FILE).stat().st_mode & 0o777 == 0o600


def test_rows_of_an_older_rota_are_sealed_once_and_leave_no_trace(tmp_path: Path) -> None:
    engine = open_database(tmp_path / "rota.db")
    Records(engine).write(WriteBatch(new_jobs=[row()]))()
    engine.dispose()
    assert b"hunter2" in b"".join(path.read_bytes() for path in tmp_path.glob("rota.db*"))

    engine = open_database(tmp_path / "rota.db")
    sealer = load_sealer(tmp_path)
    counts = seal_stored(engine, sealer), seal_stored(engine, sealer)
    opened = Records(engine, sealer).opened_spec(Records(engine).live_jobs()[0])
    engine.dispose()

    assert counts == (1, 0)
    assert json.loads(opened) == json.loads(SPEC)
    assert b"hunter2" not in b"".join(path.read_bytes() for path in tmp_path.glob("rota.db*"))


def test_value_is_bound_to_its_job_and_its_key() -> None:
    sealer = Sealer(b"k" * 32)
    sealed = sealer.seal(SPEC, "1")

    moved = json.loads(sealer.unseal(sealed, "2"))["env"]["KEY"]["secret"]
    foreign = json.loads(Sealer(b"x" * 32).unseal(sealed, "1"))["env"]["KEY"]["secret"]

    assert is_sealed(moved)
    assert is_sealed(foreign)
    assert json.loads(sealer.unseal(sealed, "1")) == json.loads(SPEC)


def test_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    load_sealer(tmp_path)
    (tmp_path / KEY_FILE).chmod(0o644)

    with pytest.raises(RotaError, match=r"secrets\.key can be read by other users; make it yours alone: chmod 600"):
        load_sealer(tmp_path)


def test_broken_key_is_named(tmp_path: Path) -> None:
    load_sealer(tmp_path)
    (tmp_path / KEY_FILE).write_bytes(b"nonsense")

    with pytest.raises(RotaError, match=r"secrets\.key holds no key of 32 bytes; restore it from a backup"):
        load_sealer(tmp_path)
