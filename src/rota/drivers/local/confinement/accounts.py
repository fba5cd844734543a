"""The Unix account under which a job's tasks run.

A job belongs to the user who submitted it and to a tenant. Its account is, in this order: the one that the user's token
names, the one that `accounts` gives the user, the one that `run_as` gives the tenant. Without any of these settings,
tasks run as the manager does.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rota.core.errors import RotaError

LOGIN_DEFS = Path("/etc/login.defs")
DEFAULT_UMASK = 0o022
FIRST_UID = 1000
OVERFLOW_UIDS = (65534, 65535)
"""What the kernel and NFS show for users that they do not know."""
ANY = "*"
"""Stands for every tenant that has no account of its own."""
NAMES, TOKENS = "names", "tokens"
"""The values of `accounts` with which a user's name is that of its account, and with which only tokens name one."""
_UMASK = re.compile(r"umask=(0?[0-7]{3})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnixAccount:
    """A user of this machine, as its tasks need to know it."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str
    umask: int = DEFAULT_UMASK


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountMap:
    """Which account a job gets. `users` is `names`, `tokens`, a mapping of users to accounts, or a file with one."""

    users: str | Mapping[str, str] | None = None
    run_as: Mapping[str, str] = field(default_factory=dict)
    """By tenant; `*` is for all others."""

    @property
    def is_empty(self) -> bool:
        """Whether tasks run as the manager does."""
        return self.users is None and not self.run_as

    @property
    def shared(self) -> str | None:
        """The account that tasks of all tenants share, if there is one; None if they are kept apart."""
        return self.run_as[ANY] if self.users is None and self.run_as.keys() == {ANY} else None

    def account_of(self, user: str, tenant: str, given: str | None = None) -> str | None:
        """Return the name of the account for a user's job in a tenant; None: that of the manager.

        `given` is the account that the user's token names. Raises a `RotaError` if there are accounts, but none for it.
        """
        if given is not None:
            return given
        if self.is_empty:
            return None
        found = self._of_user(user) or self.run_as.get(tenant) or self.run_as.get(ANY)
        if found is None:
            raise RotaError(
                f"user {user!r} of tenant {tenant!r} has no account on the manager's machine; "
                "an administrator adds one to its token, to accounts or to run_as"
            )
        return found

    def _of_user(self, user: str) -> str | None:
        if self.users == NAMES:
            return user if _is_ordinary(user) else None
        if self.users == TOKENS:
            return None
        known = read_accounts(Path(self.users)) if isinstance(self.users, str) else self.users or {}
        return known.get(user)

    def verify(self) -> None:
        """Raise a `RotaError` if an account that is named does not exist, or may not be used."""
        for tenant, name in self.run_as.items():
            where = "run_as" if tenant == ANY else f"run_as: {tenant}"
            _must_be_allowed(look_up(name, where), where, explicit=tenant == ANY)
        if self.users in (None, NAMES, TOKENS):
            return
        known = read_accounts(Path(self.users)) if isinstance(self.users, str) else self.users or {}
        for user, name in known.items():
            _must_be_allowed(look_up(name, f"accounts: {user}"), f"accounts: {user}", explicit=False)


def token_account(name: str) -> str:
    """Return the account that a token may name; raises a `RotaError` if it may not."""
    _must_be_allowed(look_up(name), "account", explicit=False)
    return name


def _must_be_allowed(account: UnixAccount, where: str, *, explicit: bool) -> None:
    """Refuse root by mapping; that all tasks run as root can only be said as such, by `run_as: root`."""
    if os.geteuid() not in (0, account.uid):
        raise RotaError(f"{where} is {account.name!r}: only root can run tasks as another user")
    if account.uid == 0 and not explicit:
        raise RotaError(f"{where} is {account.name!r}, which is root; name an ordinary account")


def look_up(name: str, where: str = "account") -> UnixAccount:
    """Return the account of a name; raises a `RotaError` if the machine has none."""
    try:
        found = pwd.getpwnam(name)
    except (KeyError, ValueError, UnicodeError):
        raise RotaError(f"{where}: there is no user {name!r}") from None
    return UnixAccount(
        name=name,
        uid=found.pw_uid,
        gid=found.pw_gid,
        groups=tuple(os.getgrouplist(name, found.pw_gid)),
        home=found.pw_dir or "/",
        shell=found.pw_shell or "/bin/sh",
        umask=_umask(found.pw_gecos),
    )


def own_account() -> UnixAccount:
    """Return the account of this process, under which tasks run where none is mapped."""
    uid = os.geteuid()
    try:
        found = pwd.getpwuid(uid)
    except KeyError:  # as in a container that was started with a number
        return UnixAccount(name=str(uid), uid=uid, gid=os.getegid(), groups=(), home="/", shell="/bin/sh")
    return UnixAccount(
        name=found.pw_name,
        uid=uid,
        gid=os.getegid(),
        groups=tuple(os.getgroups()),
        home=found.pw_dir or "/",
        shell=found.pw_shell or "/bin/sh",
    )


def read_accounts(path: Path) -> dict[str, str]:
    """Return the mapping of users to accounts in a file: a line `USER: ACCOUNT` for each.

    The file decides under which account strangers run, so that it must be writable by root only.
    """
    try:
        found = path.stat()
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise RotaError(f"accounts: {path} can't be read: {error}") from error
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022:
        raise RotaError(f"accounts: {path} can be written by other users; make it root's, with mode 0644")
    known: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        user, colon, account = content.rpartition(":")
        if not colon or not user.strip() or not account.strip():
            raise RotaError(f"accounts: {path}, line {number} is {content[:60]!r}; write it as USER: ACCOUNT")
        known[user.strip()] = account.strip()
    return known


def _is_ordinary(user: str) -> bool:
    """Whether a name is that of a person's account: a token called `root` or `postgres` must not become that."""
    try:
        uid = pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError, UnicodeError):
        return False
    return uid >= int(_login_defs("UID_MIN") or FIRST_UID) and uid not in OVERFLOW_UIDS


def _umask(gecos: str) -> int:
    """Return a user's umask: of its entry (`umask=077`), else of login.defs, as pam_umask has it."""
    own = _UMASK.search(gecos)
    text = own[1] if own else _login_defs("UMASK")
    try:
        return int(text or "", 8) & 0o777
    except ValueError:
        return DEFAULT_UMASK


def _login_defs(key: str) -> str | None:
    try:
        lines = LOGIN_DEFS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        if len(fields) >= 2 and fields[0] == key:
            return fields[1]
    return None
