"""SSH to jobs with OpenSSH's own programs: commands, files, ports, terminals, rights, and their end with the job."""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest

import forked
from managers import Manager, eventually
from ports import free_port
from rota.drivers.local.task_runner.interactive.ssh_server import server_words
from rota.sdk.client import Client

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (os.access("/usr/sbin/sshd", os.X_OK) and shutil.which("ssh")), reason="OpenSSH is not installed"
    ),
]
SSH_S = 120.0
TERMINALS = """
import ctypes, subprocess
NEW_MOUNTS = 0x20000
MOUNT = "mount -t devpts -o newinstance,gid=5,mode=620,ptmxmode=666 devpts /dev/pts"
if ctypes.CDLL(None).unshare(NEW_MOUNTS) == 0:
    subprocess.run(f"mount --make-rprivate / && {MOUNT} && mount --bind /dev/pts/ptmx /dev/ptmx", shell=True)
"""
"""Terminals of the manager's own, mounted as systemd mounts them: containers of tests may have others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SshLab:
    """A manager whose jobs run as an ordinary Unix user, and a job of ada that runs."""

    manager: Manager
    user: str
    folder: Path
    job_id: str
    config: Path

    def env(self, name: str = "ada") -> dict[str, str]:
        """The variables of a user of the manager."""
        return {**self.manager.env, "ROTA_TOKEN": (self.folder / name).read_text()}

    def client(self, name: str) -> Client:
        """Calls of a user of the manager."""
        return Client(self.manager.client.url, self.env(name)["ROTA_TOKEN"])

    def ssh(self, *words: str, name: str = "ada", program: str = "ssh", **options: Any) -> Any:
        """Run a program of OpenSSH with the configuration."""
        command = [program, "-F", str(self.config), *words]
        return subprocess.run(
            command, env=self.env(name), capture_output=True, text=True, timeout=SSH_S, check=False, **options
        )

    def rota(self, *words: str, name: str = "ada") -> subprocess.CompletedProcess[str]:
        """Run a command of a user of the manager."""
        return forked.run(words, env=self.env(name), cwd=self.folder)


@pytest.fixture(scope="module")
def account() -> Iterator[str]:
    """A Unix user with a shell, which is not root."""
    if os.geteuid() != 0:
        yield getpass.getuser()
        return
    if shutil.which("useradd") is None:
        pytest.skip("there is no useradd to make a Unix user with")
    name = f"rota-s{os.getpid() % 100000}"
    try:
        words = ["useradd", "--create-home", "--shell", "/bin/sh", name]
        subprocess.run(words, check=True, capture_output=True)
        yield name
    finally:
        subprocess.run(["userdel", "--remove", name], capture_output=True, check=False)


@pytest.fixture(scope="module")
def lab(account: str) -> Iterator[SshLab]:
    folder = Path(tempfile.mkdtemp(prefix="rota-ssh-", dir="/var/lib" if os.geteuid() == 0 else None))
    folder.chmod(0o711)
    run_as = ("--run-as", account) if os.geteuid() == 0 else ()
    manager = Manager(folder, "--emulate", "gpu=4/4", "--require-token", *run_as)
    manager.prelude = TERMINALS if os.geteuid() == 0 else ""
    try:
        manager.start_guarded()
        for name in ("ada", "bob"):
            made = manager.client.post("/tokens", {"name": name, "role": "member", "tenants": ["nlp"]})
            (folder / name).write_text(made["token"])
        found = SshLab(manager=manager, user=account, folder=folder, job_id="1", config=folder / "ssh.config")
        manager.env["ROTA_SERVER"] = manager.client.url
        home = pwd.getpwnam(account).pw_dir
        job = {"run": ["sleep", "3600"], "resources": {"gpus": 2}, "env": {"KEPT": 'it\'s "so"'}, "workdir": home}
        found.client("ada").submit(job)
        manager.wait("1", "running")
        said = found.rota("ssh-config", "1")
        assert said.returncode == 0, said.stderr
        found.config.write_text(said.stdout)
        yield found
    finally:
        manager.clean_up()
        shutil.rmtree(folder, ignore_errors=True)


def test_command_runs_where_the_task_runs_with_its_variables_and_status(lab: SshLab) -> None:
    script = (
        'echo "$ROTA_JOB_ID" "$CUDA_VISIBLE_DEVICES" "$KEPT"; id -un; pwd; echo "$PATH"; readlink /proc/self/ns/mnt; '
        "cat /proc/self/cgroup; grep -E 'NoNewPrivs|Seccomp:|CapEff' /proc/self/status; exit 7"
    )

    beside = lab.rota("exec", "1", "--", "sh", "-c", script)
    said = lab.ssh("rota-1", script)

    assert said.returncode == 7, said.stderr
    assert said.stdout == beside.stdout
    assert said.stdout.splitlines()[:2] == ['1 0,1 it\'s "so"', lab.user]
    assert said.stderr == ""


def test_files_are_copied_both_ways_relative_to_the_folder_of_the_job(lab: SshLab, tmp_path: Path) -> None:
    sent = os.urandom(3_000_000)
    (tmp_path / "up").write_bytes(sent)

    up = lab.ssh("-q", str(tmp_path / "up"), "rota-1:copied", program="scp")
    with (tmp_path / "up").open("rb") as file:
        there = lab.ssh("rota-1", "cat > piped && cmp copied piped", stdin=file)
    down = lab.ssh("-q", "rota-1:copied", str(tmp_path / "down"), program="scp")

    assert (up.returncode, there.returncode, down.returncode) == (0, 0, 0), (up.stderr, there.stderr, down.stderr)
    assert (tmp_path / "down").read_bytes() == sent
    assert Path(pwd.getpwnam(lab.user).pw_dir, "copied").stat().st_uid == pwd.getpwnam(lab.user).pw_uid


def test_a_port_is_forwarded_and_a_terminal_is_one(lab: SshLab) -> None:
    if os.geteuid() != 0 and ",gid=5," not in Path("/proc/mounts").read_text():
        pytest.skip("/dev/pts is mounted without gid=5, so that sshd has no terminals here")
    port, remote = free_port(), free_port()
    serve = f"tty; echo here; exec python3 -m http.server --bind 127.0.0.1 {remote}"
    command = ["ssh", "-F", str(lab.config), "-tt", "-L", f"127.0.0.1:{port}:127.0.0.1:{remote}", "rota-1", serve]
    with subprocess.Popen(command, env=lab.env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"/dev/pts/")
        assert process.stdout.readline().strip() == b"here"

        assert eventually(lambda: _status(port)) == 200

        process.terminate()


def _status(port: int) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status
    except (OSError, HTTPException):
        return 0
    finally:
        connection.close()


@pytest.mark.attack(
    "logs in to a colleague's job by SSH, or finds another key for its host",
    stopped_by="the rights of `rota exec`; the key of the host comes over the connection to the manager",
)
def test_ssh_has_the_rights_of_exec_and_keys_that_are_known(lab: SshLab) -> None:
    refused = lab.ssh("rota-1", "true", name="bob")
    strangers = lab.folder / "strangers.pub"
    strangers.write_text("ssh-ed25519 " + "A" * 68)
    other_key = lab.folder / "other.config"
    known = next(line.split(" --key ")[1].split()[0] for line in lab.config.read_text().splitlines() if "--key" in line)
    other_key.write_text(lab.config.read_text().replace(f"--key {known}", f"--key {strangers}"))
    denied = subprocess.run(
        ["ssh", "-F", str(other_key), "rota-1", "true"], env=lab.env(), capture_output=True, text=True, check=False
    )
    by_name = lab.ssh("-l", "root", "rota-1", "true")

    assert refused.returncode == 255
    assert "job 1 belongs to 'ada'" in refused.stderr
    assert denied.returncode == 255
    assert "Permission denied" in denied.stderr
    assert by_name.returncode == 255
    assert "Permission denied" in by_name.stderr
    who = {(each["who"], each["what"]) for each in lab.manager.client.audit(50)}
    assert ("ada", "session-ssh") in who
    assert ("bob", "session-ssh") not in who


@pytest.mark.attack(
    "leaves its host key or variables where others read them", stopped_by="a folder of mode 0700; files without a name"
)
def test_what_a_server_keeps_is_the_job_s_own(lab: SshLab) -> None:
    assert lab.ssh("rota-1", "true").returncode == 0
    folder = lab.manager.home / "runs" / "1" / "shared" / ".rota-ssh"

    assert [each.name for each in folder.iterdir()] == ["host_key"]
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "host_key").stat().st_mode & 0o777 == 0o600
    key = Path(lab.manager.env["XDG_STATE_HOME"], "rota", "ssh", "id_ed25519")
    assert key.stat().st_mode & 0o777 == 0o600


def test_sessions_end_with_the_job(lab: SshLab) -> None:
    stop = Path(pwd.getpwnam(lab.user).pw_dir) / "stop"
    job_id = lab.client("ada").submit({"run": f"until [ -e {stop} ]; do sleep 0.1; done"})[0]
    lab.manager.wait(job_id, "running")
    command = ["ssh", "-F", str(lab.config), f"rota-{job_id}", "sleep 3601 & echo $!; wait"]
    with subprocess.Popen(command, env=lab.env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline())  # in a namespace of its own, perhaps

        stop.touch()

        assert process.wait(timeout=SSH_S) == 255
    lab.manager.wait(job_id, "succeeded")
    ended = lab.ssh(f"rota-{job_id}", "true")
    assert f"job {job_id} has ended (succeeded)" in ended.stderr


def test_configuration_is_written_and_not_over_another_s(lab: SshLab) -> None:
    said = lab.rota("ssh-config", "--write")

    file = lab.folder / ".ssh" / "rota_config"
    assert said.returncode == 0, said.stderr
    assert "Include ~/.ssh/rota_config" in said.stderr
    assert f"User {lab.user}" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    (lab.folder / ".ssh" / "config").write_text("Include ~/.ssh/rota_config\n")
    assert lab.rota("ssh-config", "--write").stderr == ""
    file.write_text("mine\n")
    said = lab.rota("ssh-config", "--write")
    assert (said.returncode, file.read_text()) == (2, "mine\n")
    assert "was not written by" in said.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide an sshd")
def test_what_is_missing_is_named(account: str) -> None:
    shared = Path(tempfile.mkdtemp(prefix="rota-ssh-"))
    shared.chmod(0o777)
    env = {"PATH": "/usr/bin:/bin", "ROTA_RUN_DIR": str(shared)}
    words = server_words(["ssh-ed25519 " + "A" * 68])
    hide = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /usr/sbin && exec "$@"', "sh"]
    as_user = ["/usr/bin/setpriv", "--reuid", account, "--regid", account, "--clear-groups"]
    try:
        if subprocess.run([*hide, "true"], capture_output=True, check=False).returncode:
            pytest.skip("mounts are not allowed here")

        found = [
            subprocess.run([*before, *words], env=env, capture_output=True, text=True, check=False)
            for before in ([*hide, *as_user], [], [*as_user[:1], "--reuid", "nobody"])
        ]

        why = [(each.returncode, each.stdout, each.stderr) for each in found]
        assert why[0] == (1, "", "no SSH: there is no sshd where the task runs; install openssh-server there")
        assert why[1][2].startswith("no SSH: the job runs as root")
        assert "which refuses logins; set another with chsh" in why[2][2]
    finally:
        shutil.rmtree(shared)
