"""Finds the programs of a real Slurm for tests.

They are Debian's. Where they are missing and ROTA_INSTALL_SLURM is set, root installs them with apt; elsewhere the
tests that need them are skipped, with the reason.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge", "liblua5.3-0")
ACCOUNTING_PACKAGES = ("slurmdbd", "mariadb-server-core", "mariadb-client-core")
REST_PACKAGES = ("slurmrestd",)
TOKEN_PACKAGES = ("slurm-wlm-jwt-plugin",)
NEEDED = ("munged", "slurmctld", "slurmd", "squeue", "scontrol", "sinfo", "sbatch")
ACCOUNTING_NEEDED = ("slurmdbd", "mariadbd", "mariadb", "sacct", "sacctmgr")


class NoSlurm(Exception):
    """Slurm is not installed and can't be installed here."""


def find_programs(*, accounting: bool) -> None:
    """Raise `NoSlurm` where programs are missing that can't be installed."""
    if os.geteuid():
        raise NoSlurm("slurmd and slurmctld of one host need root here")
    if accounting:
        _find(NEEDED + ACCOUNTING_NEEDED, PACKAGES + ACCOUNTING_PACKAGES)
    else:
        _find(NEEDED, PACKAGES)


def find_rest() -> None:
    """Raise `NoSlurm` where slurmrestd is missing and can't be installed."""
    _find(REST_PACKAGES, REST_PACKAGES)


def find_tokens() -> None:
    """Raise `NoSlurm` where Slurm's plugin for tokens is missing and can't be installed."""
    if not _has_tokens() and os.environ.get("ROTA_INSTALL_SLURM"):
        with Path(tempfile.gettempdir(), "rota-slurm-install.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _has_tokens():
                _install(TOKEN_PACKAGES)
    if not _has_tokens():
        raise NoSlurm(f"there is no auth_jwt.so; `apt-get install {' '.join(TOKEN_PACKAGES)}` brings it")


def _has_tokens() -> bool:
    return any(Path("/usr/lib").glob("*/slurm-wlm/auth_jwt.so"))


def _find(needed: Sequence[str], packages: Sequence[str]) -> None:
    """Install packages where programs are missing and that is asked for."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"

    def missing() -> list[str]:
        return [name for name in needed if shutil.which(name, path=path) is None]

    if not missing():
        return
    if not os.environ.get("ROTA_INSTALL_SLURM"):
        raise NoSlurm(f"there is no {', '.join(missing())}; `apt-get install {' '.join(packages)}` brings them")
    with Path(tempfile.gettempdir(), "rota-slurm-install.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if missing():
            _install(packages)
    if missing():
        raise NoSlurm(f"there is no {', '.join(missing())} although its package is installed")


def _install(packages: Sequence[str]) -> None:
    wait = ("-o", "DPkg::Lock::Timeout=120")  # another program may be installing
    command = ["apt-get", *wait, "install", "-y", "--no-install-recommends", *packages]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    try:
        made = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoSlurm(f"packages of Slurm can't be installed: {error}") from error
    if made.returncode:
        raise NoSlurm(f"packages of Slurm can't be installed: {made.stderr.strip().splitlines()[-1:]}")
