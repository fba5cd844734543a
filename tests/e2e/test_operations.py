"""What an administrator does: scrape, back up, tidy, hand out tokens, move between databases."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from managers import Manager, eventually
from ports import free_port
from rota.live.loop.retention import tidy
from rota.sdk.client import Client, Refused
from rota.store.database import open_database
from rota.store.records import Records

pytestmark = pytest.mark.slow


def test_probes_metrics_events_and_the_schema_answer(manager: Manager) -> None:
    manager.wait(manager.submit("true"))
    told = {}
    for path in ("/healthz", "/readyz", "/metrics", "/api/openapi.json"):
        with urllib.request.urlopen(manager.client.url + path, timeout=10) as answer:
            told[path] = answer.read().decode()

    assert (told["/healthz"], told["/readyz"]) == ("ok\n", "ready\n")
    assert 'rota_jobs{state="succeeded"} 1.0' in told["/metrics"]
    assert 'rota_devices{type="gpu",use="free"} 8.0' in told["/metrics"]
    assert "/api/v1/jobs/{job_id}/why" in json.loads(told["/api/openapi.json"])["paths"]


def test_changes_are_told_as_they_happen(manager: Manager) -> None:
    with urllib.request.urlopen(manager.client.url + "/api/v1/events", timeout=20) as stream:
        assert stream.readline() == b": connected\n"
        job_id = manager.submit("true")
        seen = []
        while "succeeded" not in seen:
            line = stream.readline().decode()
            if line.startswith("data: "):
                news = json.loads(line[6:])
                assert news["id"] == job_id
                seen.append(news["state"])

    assert seen[0] in ("waiting", "starting")


def test_pages_hold_together(manager: Manager) -> None:
    ids = manager.client.submit([{"run": "true", "name": "many"}] * 25, held=True)

    first = manager.client.get("/jobs?limit=10")
    second = manager.client.get(f"/jobs?limit=10&after={first['next']}")

    assert [job["id"] for job in (*first["jobs"], *second["jobs"])] == ids[:4:-1]
    assert [job["id"] for job in manager.client.jobs()] == ids[::-1]


def test_backup_can_be_restored(manager: Manager, tmp_path: Path) -> None:
    job_id = manager.submit("echo kept")
    manager.wait(job_id)

    assert manager.rota("backup", "copy.db").returncode == 0
    assert manager.stop() == 0
    for name in ("rota.db", "rota.db-wal", "rota.db-shm"):
        (manager.home / name).unlink(missing_ok=True)
    shutil.copy(tmp_path / "copy.db", manager.home / "rota.db")
    manager.start()

    assert manager.client.job(job_id)["state"] == "succeeded"
    assert manager.rota("backup", "copy.db").returncode == 2


def test_journal_of_an_earlier_start_can_be_had_and_replayed(manager: Manager) -> None:
    manager.wait(manager.submit("true", name="before", resources={"gpus": 1}))
    manager.kill()
    manager.start()
    manager.wait(manager.submit("true", name="after", resources={"gpus": 1}))

    for back, there, missing in ((0, b"after", b"before"), (1, b"before", b"after")):
        said = b"".join(manager.client.journal(back))
        assert (there in said, missing in said) == (True, False)
        (manager.folder / f"{back}.jsonl").write_bytes(said)
        replayed = manager.rota("sim", "--replay", f"{back}.jsonl", "-o", "json")
        assert (replayed.returncode, replayed.stderr) == (0, "")
    with pytest.raises(Refused, match="there is no journal segment 2 back; 2 are kept"):
        list(manager.client.journal(2))


def test_old_jobs_go_with_their_output(manager: Manager) -> None:
    job_id, newest = manager.submit("true"), manager.submit("true")
    manager.wait(job_id)
    manager.wait(newest)
    manager.stop()
    database = open_database(manager.home / "rota.db")

    gone = tidy(Records(database), manager.home, 60.0, time.time() + 3600)

    database.dispose()
    assert gone == [job_id]
    assert not (manager.home / "runs" / job_id).exists()
    manager.start()
    assert int(manager.submit("true")) > int(newest)


def test_manager_goes_on_with_the_jobs_of_an_older_one(tmp_path: Path) -> None:
    manager = Manager(tmp_path, "--emulate", "gpu=2/2")
    manager.home.mkdir(parents=True)
    with closing(sqlite3.connect(manager.home / "rota.db")) as database:
        database.executescript((Path(__file__).parents[1] / "store" / "schema-0001.sql").read_text())
    manager.start()
    try:
        assert [(job["id"], job["state"]) for job in manager.client.jobs(all=True)][2:] == [
            ("2", "failed"),
            ("1", "succeeded"),
        ]
        manager.client.act("3", "release")
        assert manager.wait("3")["state"] == "succeeded"
        assert manager.said("3") == "kept\n"
        assert manager.submit("true") == "5"
    finally:
        manager.clean_up()


def test_commands_say_when_nothing_runs_and_when_a_job_never_can(manager: Manager) -> None:
    never = manager.rota("submit", "--gpus", "9", "--", "true")
    manager.stop()
    gone = manager.rota("ps")

    assert never.stderr.startswith(f"note: job {never.stdout.strip()} waits, and can't start here: needs 9 devices")
    assert (gone.returncode, gone.stderr.split(";")[0]) == (1, "error: no manager runs on this machine")


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[Manager, str]]:
    """A manager that asks for tokens, and its first one."""
    made = Manager(tmp_path, "--emulate", "gpu=2/2", "--require-token")
    made.start_guarded()
    yield made, made.token
    made.clean_up()


@pytest.mark.attack(
    "reads, cancels and depends on another tenant's job; makes itself an administrator; uses a revoked token",
    stopped_by="the role and the tenants of the token",
)
def test_tokens_say_who_may_do_what(guarded: tuple[Manager, str]) -> None:
    manager, _ = guarded
    url, admin = manager.client.url, manager.client
    secrets = {}
    for name, role, tenants in (("ada", "member", ["nlp"]), ("bob", "member", ["vision"]), ("eve", "viewer", ["*"])):
        secrets[name] = admin.post("/tokens", {"name": name, "role": role, "tenants": tenants})["token"]
    short = admin.post("/tokens", {"name": "old", "role": "admin", "expires_in_s": 0.001})["token"]
    clients = {name: Client(url, secret) for name, secret in secrets.items()}
    job_id = clients["ada"].submit({"run": "sleep 60", "env": {"K": {"secret": "s3cr3t"}}})[0]
    assert clients["ada"].job(job_id)["tenant"] == "nlp"  # its only one

    refusals: list[tuple[Callable[[], object], int]] = [
        (lambda: Client(url).nodes(), 401),
        (lambda: Client(url, "rota_wrong").nodes(), 401),
        (lambda: Client(url, short).nodes(), 401),
        (lambda: clients["bob"].job(job_id), 404),
        (lambda: clients["bob"].act(job_id, "cancel"), 404),
        (lambda: list(clients["bob"].logs(job_id)), 404),
        (lambda: clients["bob"].submit({"run": "true", "tenant": "nlp"}), 403),
        (lambda: clients["bob"].submit({"run": "true", "tenant": "vision", "depends_on": [job_id]}), 422),
        (lambda: clients["eve"].submit({"run": "true"}), 403),
        (lambda: clients["eve"].act(job_id, "cancel"), 403),
        (lambda: clients["ada"].post("/tokens", {"name": "mine", "role": "admin"}), 403),
        (lambda: clients["ada"].drain("n1"), 403),
        (lambda: clients["ada"].get("/audit"), 403),
        (lambda: list(clients["ada"].journal()), 403),
    ]
    for ask, status in refusals:
        with pytest.raises(Refused) as refused:
            ask()
        assert refused.value.status == status
    assert list(clients["bob"].jobs()) == []
    assert clients["ada"].job(job_id)["spec"]["env"] == {"K": {"secret": "***"}}
    assert clients["eve"].job(job_id)["spec"]["env"] == {"K": "***"}
    bob = next(token for token in admin.get("/tokens") if token["name"] == "bob")
    admin.delete(f"/tokens/{bob['id']}")
    with pytest.raises(Refused, match="revoked"):
        clients["bob"].nodes()
    stored = (manager.home / "rota.db").read_bytes() + (manager.home / "rota.db-wal").read_bytes()
    assert not any(secret.encode() in stored for secret in secrets.values())
    what = [entry["what"] for entry in admin.get("/audit")]
    assert (what.count("token-create"), what.count("token-revoke"), what.count("submit")) == (5, 1, 1)
    shown = manager.rota("audit", "--server", url, "--what", "submit", "-o", "json")
    assert shown.returncode == 2
    assert "token" in shown.stderr
    manager.env["ROTA_TOKEN"] = manager.token
    (row,) = json.loads(manager.rota("audit", "--server", url, "--what", "submit", "-o", "json").stdout)
    assert (row["who"], row["thing"]) == ("ada", job_id)
    for client in clients.values():
        client.close()


POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


@pytest.mark.skipif(not POSTGRES, reason="there is no PostgreSQL here")
def test_postgresql_keeps_jobs_as_sqlite_does(tmp_path: Path) -> None:
    binaries, folder = POSTGRES[-1].parent, Path(f"/tmp/rota-pg-{os.getpid()}")
    as_user = ["setpriv", "--reuid", "nobody", "--clear-groups"] if os.geteuid() == 0 else []
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    port = free_port()
    init = [*as_user, str(binaries / "initdb"), "-A", "trust", "-U", "rota", str(folder / "db")]
    serve = [*as_user, str(binaries / "postgres"), "-D", str(folder / "db"), "-p", str(port), "-k", str(folder)]
    subprocess.run(init, check=True, capture_output=True)
    server = subprocess.Popen(serve, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    manager = Manager(
        tmp_path, "--emulate", "gpu=2/2", "--database", f"postgresql+psycopg://rota@127.0.0.1:{port}/postgres"
    )
    try:
        eventually(lambda: _answers(port))
        manager.start()
        job_id = manager.submit("while [ ! -e end ]; do sleep 0.05; done; echo done")
        manager.wait(job_id, "running")
        manager.kill()
        (manager.folder / "end").touch()
        manager.start()
        assert manager.wait(job_id)["state"] == "succeeded"
        assert manager.said(job_id) == "done\n"
        manager.client.post("/tokens", {"name": "ada"})
        assert manager.client.get("/audit/verify")["fault"] is None
    finally:
        manager.clean_up()
        server.terminate()
        server.wait()
        shutil.rmtree(folder)


def _answers(port: int) -> bool:
    import psycopg

    try:
        psycopg.connect(f"host=127.0.0.1 port={port} user=rota dbname=postgres").close()
    except psycopg.OperationalError:
        return False
    return True
