"""Off loopback, over TLS, as another user: what keeps a manager its owner's."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import forked
from managers import Manager, eventually
from rota.core.errors import RotaError
from rota.sdk.client import Client, Refused

pytestmark = pytest.mark.slow


def certificate(folder: Path, names: str = "IP:127.0.0.1,DNS:localhost") -> tuple[Path, Path]:
    """A certificate that nobody but its maker trusts."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    made = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=rota -addext subjectAltName={names}"
    subprocess.run([*made.split(), "-out", str(cert), "-keyout", str(key)], check=True, capture_output=True)
    return cert, key


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Manager]:
    """A manager that answers everywhere, over TLS."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    cert, key = certificate(tmp_path)
    tls = ("--tls-cert", str(cert), "--tls-key", str(key))
    made = Manager(tmp_path, "--emulate", "gpu=2/2", "--host", "0.0.0.0", *tls).start_guarded()
    url = made.client.url.replace("0.0.0.0", "127.0.0.1")
    made.client = Client(url, made.token, cacert=str(cert))
    yield made
    made.clean_up()


@pytest.mark.attack(
    "presents a certificate that the client does not trust",
    stopped_by="the client verifies the certificate and the host name",
)
def test_client_trusts_a_certificate_that_it_was_given_and_no_other(secure: Manager) -> None:
    url = secure.client.url

    assert url.startswith("https://127.0.0.1:")
    assert [node["id"] for node in secure.client.nodes()] == ["n1"]
    with pytest.raises(RotaError, match=r"certificate of https.* is not trusted: self.signed certificate.*ROTA_CACERT"):
        Client(url, secure.token).nodes()
    with pytest.raises(RotaError, match="can't be read as certificates"):
        Client(url, secure.token, cacert=str(secure.folder / "key.pem")).nodes()
    with pytest.raises(RotaError, match=r"hostname|IP address mismatch"):
        Client(url.replace("127.0.0.1", "127.0.0.2"), secure.token, cacert=str(secure.folder / "cert.pem")).nodes()


def test_commands_take_the_certificate_by_option_by_variable_and_from_the_machine(secure: Manager) -> None:
    cert, url = str(secure.folder / "cert.pem"), secure.client.url
    plain = {**secure.env, "ROTA_TOKEN": secure.token}
    elsewhere = {**plain, "XDG_STATE_HOME": str(secure.folder / "nowhere")}

    def told(env: dict[str, str], *args: str) -> tuple[int, str]:
        done = forked.run(args, env=env)
        return done.returncode, done.stderr

    assert told(plain, "nodes") == (0, "")
    assert told(elsewhere, "--cacert", cert, "nodes", "--server", url) == (0, "")
    assert told({**elsewhere, "ROTA_CACERT": cert}, "nodes", "--server", url) == (0, "")
    code, said = told(elsewhere, "nodes", "--server", url)
    assert (code, said.count("\n")) == (2, 1)
    assert "is not trusted" in said


@pytest.mark.attack(
    "asks a manager off loopback without a token, or with an expired one",
    stopped_by="tokens are required off loopback, and expire",
)
def test_off_loopback_nothing_is_told_without_a_token(secure: Manager) -> None:
    cert, url = str(secure.folder / "cert.pem"), secure.client.url
    with pytest.raises(Refused) as refused:
        Client(url, cacert=cert).nodes()
    assert refused.value.status == 401

    short = secure.client.post("/tokens", {"name": "brief", "role": "admin", "expires_in_s": 1.0})["token"]
    assert Client(url, short, cacert=cert).nodes()

    def expired() -> bool:
        try:
            Client(url, short, cacert=cert).nodes()
        except Refused as error:
            return error.status == 401 and "has expired" in str(error)
        return False

    eventually(expired)


def test_key_without_certificate_or_a_wrong_one_is_refused_at_the_start(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    cert, key = certificate(tmp_path)
    manager = Manager(tmp_path)

    alone = manager.rota("up", "--port", "0", "--tls-cert", str(cert))
    swapped = manager.rota("up", "--port", "0", "--emulate", "gpu=1/1", "--tls-cert", str(key), "--tls-key", str(cert))

    assert (alone.returncode, alone.stderr.count("\n")) == (2, 1)
    assert "TLS needs both" in alone.stderr
    assert (swapped.returncode, swapped.stderr.count("\n")) == (2, 1)
    assert "tls_cert" in swapped.stderr


@pytest.mark.attack(
    "reads the manager's database, pipe and environment from a task, and kills its recorder",
    stopped_by="tasks run as another user",
)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run tasks as another user")
def test_tasks_run_as_another_user_and_reach_nothing_of_the_manager(tmp_path: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o001 == 0:
            folder.chmod(folder.stat().st_mode | 0o011)
    manager = Manager(tmp_path, "--emulate", "gpu=2/2", "--run-as", "nobody").start()
    try:
        look = (
            "echo $(id -u) $(id -g); echo x > $ROTA_RUN_DIR/mine && echo wrote; "
            f"cat {manager.home}/rota.db >/dev/null 2>&1 || echo no database; "
            f"[ -z \"$(ls {manager.home} 2>/dev/null | grep -v '^runs$')\" ] && echo no list; "
            f"(echo x > {manager.home}/notify) 2>/dev/null || echo no socket; "
            'grep -c "" /proc/$PPID/environ >/dev/null 2>&1 || echo no recorder; '
            "kill -9 $PPID 2>/dev/null || echo no kill"
        )
        job_id = manager.client.submit({"run": look})[0]
        assert manager.wait(job_id)["state"] == "succeeded"
        assert manager.said(job_id).splitlines() == [
            f"{nobody.pw_uid} {nobody.pw_gid}",
            "wrote",
            "no database",
            "no list",
            "no socket",
            "no recorder",
            "no kill",
        ]
        gang = manager.client.submit({"run": "sleep 600", "workers": 2})[0]
        manager.wait(gang, "running")
        manager.client.act(gang, "cancel")
        assert manager.wait(gang)["state"] == "cancelled"
        eventually(lambda: manager.task_processes() == [])
    finally:
        manager.clean_up()


def test_run_as_somebody_who_does_not_exist_is_refused(tmp_path: Path) -> None:
    told = Manager(tmp_path).rota("up", "--port", "0", "--run-as", "no-such-user")

    assert (told.returncode, told.stderr) == (2, "error: run_as: there is no user 'no-such-user'\n")
