"""The user's files for SSH to jobs: a key, the keys of hosts, and the entries of OpenSSH's configuration."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from rota.core.errors import RotaError
from rota.drivers.local.task_runner.interactive.ssh_server import HELLO, KEY

PREFIX = "rota-"
FIRST_LINE = "# SSH to jobs, written by `rota ssh-config`; the next --write replaces this file"
MOST_HOSTS = 1000
MOST_HELLO = 17_000
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@\\+-]{0,63}")
_HOST = re.compile(rf"{PREFIX}([A-Za-z0-9_-]{{1,64}})(?:\.([0-9]{{1,5}}))?")


def host_of(job_id: str, rank: int = 0) -> str:
    """Return the name of a task as a host."""
    return f"{PREFIX}{job_id}" + (f".{rank}" if rank else "")


def task_of(host: str) -> tuple[str, int]:
    """Return the job and the rank that a host stands for; raise a `RotaError` for a name that is none of a job."""
    found = _HOST.fullmatch(host)
    if found is None:
        raise RotaError(f"{host[:80]!r} is no host of a job; write rota-JOB, or rota-JOB.RANK for another task than 0")
    return found[1], int(found[2] or 0)


def read_hello(line: bytes) -> tuple[str, str]:
    """Return the user and the key of the host, as a server of SSH in a job says them first."""
    text = line.decode("ascii", "replace")
    words = text.removeprefix(HELLO + " ").split(" ")
    key = " ".join(words[1:3])
    if not text.startswith(HELLO + " ") or _USER.fullmatch(words[0]) is None or KEY.fullmatch(key) is None:
        raise RotaError(f"what answers is no server of SSH of a job: {text[:80]!r}")
    return words[0], key


def public_key(key: Path) -> str:
    """Return the public key of a file, without its comment."""
    file = key if key.suffix == ".pub" else Path(f"{key}.pub")
    try:
        words = file.read_text(encoding="utf-8").split()
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise RotaError(f"--key: {file} can't be read: {why}; `rota ssh-config` without --key makes a key") from None
    found = " ".join(words[:2])
    if KEY.fullmatch(found) is None:
        raise RotaError(f"--key: {file} is no public key of OpenSSH")
    return found


def own_key(folder: Path) -> Path:
    """Return the user's key for jobs, which is made where there is none."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = folder / "id_ed25519"
    with _locked(folder):
        if not Path(f"{key}.pub").exists():
            key.unlink(missing_ok=True)
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "rota", "-f", str(key)]
            try:
                subprocess.run(words, check=True, capture_output=True, stdin=subprocess.DEVNULL)
            except FileNotFoundError:
                raise RotaError("there is no ssh-keygen here; install OpenSSH's client") from None
            except subprocess.CalledProcessError as error:
                raise RotaError(f"ssh-keygen can't make {key}: {error.stderr.decode(errors='replace')}") from None
    return key


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def know_host(file: Path, host: str, key: str) -> None:
    """Note the key of a host, in place of an earlier one; the hosts that were not used for longest are forgotten."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(file.parent):
        lines = file.read_text(encoding="ascii").splitlines() if file.exists() else []
        line = f"{host.lower()} {key}"
        if lines and lines[-1] == line:
            return
        kept = [each for each in lines if not each.startswith(f"{host.lower()} ")][-MOST_HOSTS:]
        write_private(file, "\n".join([*kept, line, ""]))


def write_private(file: Path, text: str) -> None:
    """Replace a file that only the user may read."""
    new = file.with_name(f".{file.name}.{os.getpid()}")
    new.unlink(missing_ok=True)
    end = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(end, "w", encoding="utf-8") as out:
        out.write(text)
    new.replace(file)


def write_config(text: str) -> Path:
    """Write the configuration below ~/.ssh; raise a `RotaError` if a file that is not ours stands there."""
    file = Path.home() / ".ssh" / "rota_config"
    file.parent.mkdir(mode=0o700, exist_ok=True)
    if file.exists() and not file.read_text(encoding="utf-8", errors="replace").startswith(FIRST_LINE):
        raise RotaError(f"{file} was not written by `rota ssh-config`; move it away, or leave --write out")
    write_private(file, text)
    return file


def is_included() -> bool:
    """Whether the user's configuration includes ours."""
    try:
        lines = (Path.home() / ".ssh" / "config").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    words = [line.replace("=", " ").split() for line in lines]
    return any(each and each[0].lower() == "include" and "rota_config" in each[-1] for each in words)


def config_text(*, server: str, key: Path, known_hosts: Path, user: str, users: Mapping[str, str]) -> str:
    """Return the entries: those of hosts with users of their own, then one for all jobs."""
    proxy = [*_rota(), "ssh-proxy", "--server", server, "--key", str(key), "--known-hosts", str(known_hosts)]
    lines = [FIRST_LINE, ""]
    for host, its_user in users.items():
        lines += [f"Host {host}", *_way(proxy, its_user), ""]
    lines += [
        # no name with a quote is ours, so that the quotes around %n below hold
        f'Host {PREFIX}* "!*\'*"',
        *_way(proxy, user),
        f'    IdentityFile "{_escaped(key)}"',
        "    IdentitiesOnly yes",
        f'    UserKnownHostsFile "{_escaped(known_hosts)}"',
        "    GlobalKnownHostsFile /dev/null",
        "    HostKeyAlgorithms ssh-ed25519",
        "    StrictHostKeyChecking yes",
        "    UpdateHostKeys no",
        "    CheckHostIP no",
        "    PreferredAuthentications publickey",
        "    ServerAliveInterval 30",
        "",
    ]
    return "\n".join(lines)


def _way(proxy: list[str], user: str) -> list[str]:
    command = shlex.join([*proxy, "--user", user]).replace("%", "%%")
    return [f"    User {user}", f"    ProxyCommand {command} '%n'"]


def _rota() -> list[str]:
    """Return how this `rota` is started from anywhere."""
    beside = Path(sys.executable).with_name("rota")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("rota")
    return [sys.executable, "-c", "from rota.cli.main import run; run()"] if found is None else [found]


def _escaped(path: Path) -> str:
    return str(path.with_suffix("") if path.suffix == ".pub" else path).replace("%", "%%")
