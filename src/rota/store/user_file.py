"""The file of local users with hashed passwords, for managers without single sign-on.

Passwords are hashed with scrypt. The file is written by `rota users` and read by the manager whenever it has changed.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from rota.core.errors import RotaError

COST, BLOCK, PARALLEL = 1 << 15, 8, 1
MEMORY = 64 << 20
"""Scrypt takes 128 * COST * BLOCK bytes, 32 MiB."""
MAX_COST = 1 << 20
MIN_PASSWORD, MAX_PASSWORD = 10, 1024
ROLES = ("admin", "maintainer", "member", "viewer")
RESERVED = frozenset({"local", "manager"})
"""Names of the manager itself in the audit log."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalUser:
    """A user: role, tenants (`*` means all), and the hash of the password."""

    name: str
    role: str
    tenants: tuple[str, ...]
    password: str


def is_user_name(name: str) -> bool:
    """Whether a text can be the name of a user: letters, digits and `._@+-`, as in mail addresses."""
    return _NAME.fullmatch(name) is not None and name not in RESERVED


def hash_password(password: str) -> str:
    """Return a salted hash of a password."""
    salt = secrets.token_bytes(16)
    return f"scrypt:{COST}:{BLOCK}:{PARALLEL}:{_text(salt)}:{_text(_scrypt(password, salt, COST, BLOCK, PARALLEL))}"


def is_password(password: str, hashed: str) -> bool:
    """Whether a password has this hash; takes the same time for every password."""
    _, cost, block, parallel, salt, digest = hashed.split(":")
    made = _scrypt(password, base64.b64decode(salt), int(cost), int(block), int(parallel))
    return hmac.compare_digest(made, base64.b64decode(digest))


def _scrypt(password: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    most = max(MEMORY, 256 * cost * block)
    return hashlib.scrypt(password.encode(), salt=salt, n=cost, r=block, p=parallel, maxmem=most, dklen=32)


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def refuse_weak(password: str) -> None:
    """Refuse a password that is too short or too long."""
    if len(password) < MIN_PASSWORD:
        raise RotaError(f"the password has {len(password)} characters; use at least {MIN_PASSWORD}")
    if len(password) > MAX_PASSWORD:
        raise RotaError(f"the password has {len(password)} characters; use at most {MAX_PASSWORD}")


def read_users(path: Path) -> dict[str, LocalUser]:
    """Return the users of a file by name; none if there is no file. Raises a `RotaError` for a file that is damaged."""
    try:
        content = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise RotaError(f"{path}: can't be read: {error}") from error
    try:
        return {name: _user(name, fields) for name, fields in json.loads(content)["users"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RotaError(f"{path}: not a file of users: {error}; write it with `rota users`") from error


def _user(name: str, fields: dict[str, object]) -> LocalUser:
    tenants, hashed = fields["tenants"], str(fields["password"])
    parts = hashed.split(":")
    if len(parts) != 6 or parts[0] != "scrypt" or not 1 < int(parts[1]) <= MAX_COST:
        raise ValueError(f"user {name!r} has an unknown kind of password")
    if fields["role"] not in ROLES:
        raise ValueError(f"user {name!r} has the unknown role {fields['role']!r}")
    if not isinstance(tenants, list) or not all(isinstance(tenant, str) for tenant in tenants):
        raise ValueError(f"user {name!r}: the tenants are not a list of names")
    return LocalUser(name=name, role=str(fields["role"]), tenants=tuple(tenants), password=hashed)


@contextmanager
def changed_users(path: Path) -> Iterator[dict[str, LocalUser]]:
    """Read the users for a change, and write them back; one change at a time."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(path.with_name(f".{path.name}.lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        users = read_users(path)
        yield users
        _write(path, users)
    finally:
        os.close(lock)


def _write(path: Path, users: dict[str, LocalUser]) -> None:
    value = {"users": {name: _fields(user) for name, user in sorted(users.items())}}
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _fields(user: LocalUser) -> dict[str, object]:
    fields = asdict(user)
    del fields["name"]
    return fields


class UserFile:
    """The users of a file, read again when the file changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self._users: dict[str, LocalUser] = {}

    def users(self) -> dict[str, LocalUser]:
        """Return the users by name; raises a `RotaError` if the file is damaged."""
        try:
            found = self.path.stat()
        except OSError:
            self._seen, self._users = None, {}
            return self._users
        seen = (found.st_mtime_ns, found.st_size, found.st_ino)
        if seen != self._seen:
            self._users = read_users(self.path)
            self._seen = seen
        return self._users
