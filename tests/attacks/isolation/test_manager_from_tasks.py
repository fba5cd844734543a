"""A task tries to reach the manager: its database, keys and files, its supervisor, and what root does in its folder."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from machine_load import slowness
from managers import ROTA, Manager, eventually
from rota.core.errors import RotaError
from rota.live.loop.retention import tidy
from rota.store.database import open_database
from rota.store.records import Records
from strangers import Shared

pytestmark = [pytest.mark.slow, pytest.mark.executable]
TRUTH = "the truth"
REFUSED = ("Permission denied", "No such file", "Operation not permitted", "not permitted", "nonexistent")


def attack(what: str, stopped_by: str, command: str, name: str) -> object:
    return pytest.param(command, id=name, marks=pytest.mark.attack(what, stopped_by=stopped_by))


FILES = [
    attack("reads the manager's database", "mode 0600", "cat {home}/rota.db", "database"),
    attack("reads the database's log", "mode 0600", "cat {home}/rota.db-wal", "write-ahead log"),
    attack("reads the key of the secrets", "mode 0600", "cat {home}/secrets.key", "key"),
    attack("reads the mark of which task tokens are derived", "mode 0600", "cat {home}/mark.json", "mark"),
    attack("lists the manager's folder", "mode 0711", "ls {home}", "home"),
    attack("lists all jobs by their folders", "mode 0711", "ls {home}/runs", "runs"),
    attack("reports false news of tasks to the manager", "mode of the pipe", "echo 1/1/0 > {home}/notify", "notify"),
    attack("locks the manager's folder", "mode 0600", "exec 9<>{home}/lock", "lock"),
    attack("reads the manager's environment", "accounts; private /proc", "cat /proc/{manager}/environ", "environ"),
    attack("ends the manager", "accounts", "kill -9 {manager}", "kill manager"),
    attack("ends its own supervisor", "accounts", "kill -9 $PPID", "kill recorder"),
    attack("suspends its own supervisor", "accounts", "kill -STOP $PPID", "stop recorder"),
    attack("reads its supervisor's environment", "accounts", "cat /proc/$PPID/environ", "recorder environ"),
    attack(
        "puts a link in place of its output file",
        "folder of the manager alone",
        "ln -sf /etc/passwd $(dirname $ROTA_TELL)/output-000000000000000.log",
        "output link",
    ),
    attack(
        "puts a pipe in place of its state",
        "folder of the manager alone",
        "rm -f $(dirname $ROTA_TELL)/state.json",
        "state pipe",
    ),
    attack(
        "writes how it ended", "folder of the manager alone", "echo {{}} > $(dirname $ROTA_TELL)/exit.json", "exit file"
    ),
    attack(
        "takes the claim of its task again", "folder of the manager alone", "rm -f $(dirname $ROTA_TELL)/claim", "claim"
    ),
    attack(
        "opens the start barrier of its gang", "folder of the manager alone", "touch $(dirname $ROTA_TELL)/../go", "go"
    ),
    attack(
        "moves the folder that root writes to and puts a link there",
        "folder of the manager alone",
        "mv $ROTA_RUN_DIR $ROTA_RUN_DIR.old",
        "move shared",
    ),
    attack(
        "makes a file beside its folder",
        "folder of the manager alone",
        "ln -s {secrets} $ROTA_RUN_DIR/../private-9",
        "link beside",
    ),
    attack(
        "makes a hard link to a file of root",
        "protected_hardlinks; folder modes",
        "ln {secrets}/file $ROTA_RUN_DIR/hard",
        "hard link",
    ),
]


@pytest.mark.parametrize("command", FILES)
def test_files_and_processes_of_the_manager_are_out_of_reach(shared: Shared, command: str) -> None:
    assert shared.manager.process is not None
    filled = command.format(home=shared.manager.home, manager=shared.manager.process.pid, secrets=shared.secrets)

    said = shared.run(f"( {filled} ) 2>&1; echo status $?")

    assert "status 0" not in said
    assert any(word in said for word in REFUSED), said
    assert "SECRET_OF_THE_MANAGER" not in said
    assert shared.manager.process.poll() is None
    assert shared.manager.client.nodes()


@pytest.mark.attack(
    "reads the manager's variables in its own environment", stopped_by="tasks get a login's variables only"
)
def test_nothing_of_the_managers_environment_is_passed_on(shared: Shared) -> None:
    said = shared.run("env")

    names = {line.partition("=")[0] for line in said.splitlines()}
    assert "ROTA_SECRET_OF_THE_MANAGER" not in names
    assert "LD_LIBRARY_PATH" not in names
    assert "XDG_DATA_HOME" not in names
    assert f"HOME=/home/{shared.attacker.name}" in said
    assert f"USER={shared.attacker.name}" in said


@pytest.mark.attack(
    "has its own library loaded into the supervisor by LD_PRELOAD", stopped_by="variables only reach the task"
)
def test_preloaded_library_does_not_reach_the_supervisor(shared: Shared) -> None:
    job_id = shared.attacker.submit(
        "echo up; sleep 600", env={"LD_PRELOAD": "/home/evil.so", "PYTHONPATH": "/home/evil", "ROTA_RUN_DIR": "/etc"}
    )
    shared.manager.wait(job_id, "running")
    eventually(lambda: "up" in shared.manager.said(job_id))
    state = json.loads((shared.rank(job_id) / "state.json").read_text())

    supervisor = [Path(f"/proc/{state[name]}/environ").read_bytes() for name in ("supervisor", "recorder")]
    task = Path(f"/proc/{state['pid']}/environ").read_bytes()
    shared.attacker.client.act(job_id, "cancel")
    shared.manager.wait(job_id)

    assert not any(b"evil" in environ for environ in supervisor)
    assert not any(b"ROTA_SECRET" in environ for environ in supervisor)
    assert b"LD_PRELOAD=/home/evil.so" in task


@pytest.mark.parametrize(
    "command",
    [
        attack(
            "links the progress that the manager reads to a file of root",
            "O_NOFOLLOW; only numbers are taken",
            "ln -s {secrets}/file $ROTA_RUN_DIR/progress-0.json",
            "link",
        ),
        attack(
            "puts a pipe in place of the progress, so that the manager waits",
            "O_NONBLOCK",
            "mkfifo $ROTA_RUN_DIR/progress-0.json",
            "pipe",
        ),
        attack(
            "reports progress in a file of endless size",
            "only the first bytes are read",
            "truncate -s 10T $ROTA_RUN_DIR/progress-0.json",
            "endless",
        ),
        attack(
            "links its learning curve to the database",
            "O_NOFOLLOW",
            "ln -s {home}/rota.db $ROTA_RUN_DIR/curve-0.json",
            "curve",
        ),
    ],
)
def test_manager_reads_nothing_through_what_a_task_put_there(shared: Shared, command: str) -> None:
    filled = command.format(secrets=shared.secrets, home=shared.manager.home)
    job_id = shared.attacker.submit(f"{filled}; echo done; sleep 600")
    shared.manager.wait(job_id, "running")
    eventually(lambda: "done" in shared.manager.said(job_id))

    begun = time.monotonic()
    seen = shared.attacker.client.job(job_id)
    took_s = time.monotonic() - begun
    shared.attacker.client.act(job_id, "cancel")
    shared.manager.wait(job_id)

    assert took_s < 2 * slowness()
    assert seen.get("progress") is None
    assert TRUTH not in json.dumps(seen)


@pytest.mark.attack(
    "links root's files into its folder, to have them deleted with it", stopped_by="deletion follows no links"
)
def test_deletion_of_a_run_folder_follows_no_links(shared: Shared) -> None:
    job_id = shared.attacker.submit(
        f"ln -s {shared.secrets} $ROTA_RUN_DIR/link; ln -s / $ROTA_RUN_DIR/root; mkdir $ROTA_RUN_DIR/d"
    )
    shared.manager.wait(job_id)
    shared.manager.wait(shared.attacker.submit("true"))  # the newest job is always kept
    database = open_database(shared.manager.home / "rota.db")

    gone = tidy(Records(database), shared.manager.home, 60.0, time.time() + 3600)
    database.dispose()

    assert job_id in gone
    assert not shared.folder(job_id).exists()
    assert (shared.secrets / "file").read_text() == TRUTH


@pytest.mark.attack("reads a secret in a copy of the database", stopped_by="secrets are encrypted (AES-GCM)")
def test_secret_is_in_no_file_of_the_database(shared: Shared) -> None:
    job_id = shared.victim.submit("echo $KEY | tr a-z A-Z", env={"KEY": {"secret": "correct horse"}})
    shared.manager.wait(job_id)

    stored = b"".join(path.read_bytes() for path in shared.manager.home.glob("rota.db*"))

    assert shared.manager.said(job_id) == "CORRECT HORSE\n"
    assert b"correct horse" not in stored
    assert b"sealed:v1:" in stored
    assert not (shared.rank(job_id) / "task.json").exists()


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(
            {"account": "root"},
            id="account",
            marks=pytest.mark.attack("names root as its account in the job file", stopped_by="no such field"),
        ),
        pytest.param(
            {"uid": 0}, id="uid", marks=pytest.mark.attack("names a uid in the job file", stopped_by="no such field")
        ),
        pytest.param(
            {"user": "root"},
            id="user",
            marks=pytest.mark.attack("names another user in the job file", stopped_by="no such field"),
        ),
    ],
)
def test_job_file_names_no_user(shared: Shared, fields: dict[str, object]) -> None:
    with pytest.raises(RotaError, match="unknown field"):
        shared.attacker.submit("id", **fields)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            "root",
            marks=pytest.mark.attack(
                "has the token name of root", stopped_by="only accounts of people are taken by name"
            ),
        ),
        pytest.param(
            "daemon",
            marks=pytest.mark.attack(
                "has the token name of a service", stopped_by="only accounts of people are taken by name"
            ),
        ),
    ],
)
def test_token_name_does_not_make_a_privileged_user(shared: Shared, name: str) -> None:
    from rota.sdk.client import Client

    made = shared.manager.client.post("/tokens", {"name": name, "role": "member", "tenants": ["x"]})
    client = Client(shared.manager.client.url, made["token"])
    job_id = client.submit({"run": "id -un", "workdir": "/"})[0]

    shared.manager.wait(job_id)

    assert shared.manager.said(job_id) == "nobody\n"


@pytest.mark.attack("an admin of the API gives itself root by a token's account", stopped_by="tokens can't name root")
def test_token_can_not_name_root(shared: Shared) -> None:
    with pytest.raises(RotaError, match="which is root; name an ordinary account"):
        shared.manager.client.post("/tokens", {"name": "eve", "role": "member", "tenants": ["x"], "account": "root"})


@pytest.mark.attack(
    "submits to a root manager that gives out tokens but has no accounts", stopped_by="it refuses to start"
)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root's tasks would run as root")
def test_root_with_tokens_and_without_accounts_refuses_to_start(tmp_path: Path) -> None:
    import subprocess

    manager = Manager(tmp_path)
    told = subprocess.run(
        [*ROTA, "up", "--port", "0", "--emulate", "gpu=1/1", "--require-token"],
        env=manager.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert told.returncode == 2
    assert told.stderr.count("\n") == 1
    assert "every job would run as root; set accounts" in told.stderr
    assert not manager.home.exists()


@pytest.mark.attack("edits the file of users to become another", stopped_by="a file that others can write is refused")
def test_file_of_users_must_be_roots_alone(tmp_path: Path) -> None:
    from rota.drivers.local.confinement.accounts import read_accounts

    path = tmp_path / "users"
    path.write_text("ada: nobody # a comment\n\nbob@lab: nobody\n")
    assert read_accounts(path) == {"ada": "nobody", "bob@lab": "nobody"}
    path.chmod(0o666)

    with pytest.raises(RotaError, match="can be written by other users; make it root's, with mode 0644"):
        read_accounts(path)
