"""Accounts, quotas and scratch space, each by itself."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.core.errors import RotaError
from rota.drivers.local.confinement.accounts import AccountMap, look_up
from rota.drivers.local.confinement.project_quota import limit_by_quota
from rota.drivers.local.task_runner.scratch import used_bytes


def test_account_of_token_then_user_then_tenant_decides() -> None:
    accounts = AccountMap(users={"ada": "nobody"}, run_as={"nlp": "daemon", "*": "bin"})

    assert accounts.account_of("ada", "nlp", "games") == "games"
    assert accounts.account_of("ada", "nlp") == "nobody"
    assert accounts.account_of("bob", "nlp") == "daemon"
    assert accounts.account_of("bob", "vision") == "bin"
    assert AccountMap().account_of("bob", "vision") is None


def test_user_without_account_is_refused_by_name() -> None:
    accounts = AccountMap(users="tokens")

    with pytest.raises(RotaError, match="user 'bob' of tenant 'nlp' has no account on the manager's machine"):
        accounts.account_of("bob", "nlp")


@pytest.mark.parametrize("name", ["root", "daemon", "nobody", "no-such-user", "a\0b"])
def test_names_are_accounts_of_people_only(name: str) -> None:
    with pytest.raises(RotaError, match="has no account"):
        AccountMap(users="names").account_of(name, "nlp")


def test_root_is_no_account_of_a_user_or_tenant() -> None:
    if os.geteuid() != 0:
        pytest.skip("others than root are refused every other account")
    with pytest.raises(RotaError, match="ada is 'root', which is root; name an ordinary account"):
        AccountMap(users={"ada": "root"}).verify()
    with pytest.raises(RotaError, match="run_as: nlp is 'root', which is root"):
        AccountMap(run_as={"nlp": "root"}).verify()
    AccountMap(run_as={"*": "root"}).verify()


def test_account_that_does_not_exist_is_named() -> None:
    with pytest.raises(RotaError, match="run_as: nlp: there is no user 'no-such-user'"):
        AccountMap(run_as={"nlp": "no-such-user"}).verify()


def test_account_has_home_groups_and_umask() -> None:
    found = look_up("daemon")

    assert (found.uid, found.gid, found.name) == (1, 1, "daemon")
    assert 1 in found.groups
    assert found.home.startswith("/")
    assert 0 <= found.umask <= 0o777


def test_scratch_counts_each_file_once_and_follows_no_links(tmp_path: Path) -> None:
    folder, outside = tmp_path / "mine", tmp_path / "outside"
    folder.mkdir()
    outside.write_bytes(b"x" * (1 << 20))
    (folder / "a").write_bytes(b"x" * (1 << 20))
    os.link(folder / "a", folder / "b")
    (folder / "link").symlink_to(outside)

    used = used_bytes([str(folder)], [], 1 << 40)

    assert (1 << 20) <= used < (1 << 20) + 65536


@pytest.fixture
def quotas(tmp_path: Path) -> Iterator[Path]:
    """A file system with project quotas, in a file."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("needs root and mkfs.ext4")
    image, at = tmp_path / "image", tmp_path / "fs"
    at.mkdir()
    with image.open("wb") as file:
        file.truncate(64 << 20)
    made = ["mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=prjquota", str(image)]
    subprocess.run(made, check=True, capture_output=True)
    mounted = subprocess.run(["mount", "-o", "loop,prjquota", str(image), str(at)], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a file system with project quotas can't be mounted here: {mounted.stderr.strip()}")
    yield at
    subprocess.run(["umount", str(at)], check=True)


@pytest.mark.attack("writes past its scratch limit where the file system keeps it", stopped_by="project quota")
def test_project_quota_ends_writes_at_the_limit(quotas: Path) -> None:
    folder, other = quotas / "job", quotas / "other"
    folder.mkdir()
    folder.chmod(0o777)
    other.mkdir()
    other.chmod(0o777)
    has_quota = limit_by_quota([folder], "job", 4 << 20)

    def write(where: Path) -> subprocess.CompletedProcess[str]:
        command = ["setpriv", "--reuid=65534", "--clear-groups", "sh", "-c", f"head -c 8M /dev/zero > {where}/big"]
        return subprocess.run(command, capture_output=True, text=True)

    assert has_quota
    over = write(folder)
    assert over.returncode != 0
    assert "Disk quota exceeded" in over.stderr or "No space left" in over.stderr
    assert (folder / "big").stat().st_size <= 4 << 20
    assert write(other).returncode == 0


def test_without_project_quotas_it_says_so(tmp_path: Path) -> None:
    if (
        "prjquota"
        in subprocess.run(["findmnt", "-no", "OPTIONS", "-T", str(tmp_path)], capture_output=True, text=True).stdout
    ):
        pytest.skip("this file system keeps project quotas")

    assert not limit_by_quota([tmp_path], "job", 1 << 20)
